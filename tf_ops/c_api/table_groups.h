// Groups of columns that are looked up in tables by key, which are made of the columns' arrays.

#ifndef FUSED_EMBEDDING_C_API_TABLE_GROUPS_H_
#define FUSED_EMBEDDING_C_API_TABLE_GROUPS_H_

#include <memory>
#include <vector>

#include "tf_ops/c_api/group_input.h"
#include "tf_ops/c_api/plans.h"

namespace fused_embedding::c_api {

template <typename T, typename Table>
struct TableGroup {
  GroupInput<T> input;
  std::vector<std::unique_ptr<Table>> tables;
};

// make(column, &table) makes the table of a column: its keys are the numbers of the array's rows.
template <typename T, typename Table, typename Make>
Status MakeTables(const FeGroup& in, const Make& make, TableGroup<T, Table>* group) {
  FE_RETURN_IF_ERROR(ToColumns(in, &group->input));
  FE_RETURN_IF_ERROR(ToTableNumbers(in, &group->input));
  group->tables.resize(static_cast<size_t>(in.num_tables));
  for (size_t c = 0; c < group->input.columns.size(); ++c) {
    GroupColumn<T>& column = group->input.columns[c];
    column.ids_are_keys = true;
    auto& table = group->tables[static_cast<size_t>(group->input.table_numbers[c])];
    if (!table) FE_RETURN_IF_ERROR(make(column, &table));
  }
  for (size_t t = 0; t < group->tables.size(); ++t) {
    if (group->tables[t]) continue;
    return InvalidArgument("table ", t, " must have a column that looks it up");
  }
  return Status();
}

// PlanTableGroupLookup on a GPU.
Status PlanGpuTableGroupLookup(const GpuExec& gpu, const FeGroup& in, FePlanned* planned);

}  // namespace fused_embedding::c_api

#endif  // FUSED_EMBEDDING_C_API_TABLE_GROUPS_H_
