// Columns of the C functions as those of core, for lookups, gradients and steps.

#ifndef FUSED_EMBEDDING_C_API_GROUP_INPUT_H_
#define FUSED_EMBEDDING_C_API_GROUP_INPUT_H_

#include <cstdint>
#include <vector>

#include "tf_ops/c_api/arrays.h"
#include "tf_ops/core/lookup/group/group_lookup_grad.h"

namespace fused_embedding::c_api {

template <typename T>
struct GroupInput {
  std::vector<GroupColumn<T>> columns;
  // Of the gradient:
  std::vector<CombinedGrad<T>> grads;
  std::vector<int64_t> table_numbers;
  int64_t num_tables = 0;

  GroupGradInput<T> gradient() const {
    return {AsSpan(columns), AsSpan(grads), AsSpan(table_numbers), num_tables};
  }
};

template <typename T>
Status ToColumn(const FeColumn& in, GroupColumn<T>* column) {
  Span<const int64_t> ids;
  Span<const int32_t> ids32;
  Span<const T> table;
  if (in.ids_are_int32) {
    FE_RETURN_IF_ERROR(ToSpan("ids", in.ids, &ids32));
    column->ids = ids32;
  } else {
    FE_RETURN_IF_ERROR(ToSpan("ids", in.ids, &ids));
    column->ids = ids;
  }
  FE_RETURN_IF_ERROR(ToRowIds(in.row_ids, &column->row_ids));
  FE_RETURN_IF_ERROR(ToSpan("weights", in.weights, &column->weights));
  FE_RETURN_IF_ERROR(ToSpan("table", in.table, in.table_rows, in.dim, &table));
  FE_RETURN_IF_ERROR(ToCombiner(in.combiner, &column->combiner));
  int64_t size = 0;
  FE_RETURN_IF_ERROR(ToSize("combined", in.num_rows, in.dim, &size));
  column->num_rows = in.num_rows;
  column->table = table.data;
  column->table_rows = in.table_rows;
  column->dim = in.dim;
  column->max_norm = in.max_norm;
  column->default_id = in.default_id;
  column->prune = in.prune != 0;
  column->fill = in.fill != 0;
  return Status();
}

template <typename T>
Status ToColumns(const FeGroup& in, GroupInput<T>* input) {
  Span<const FeColumn> columns;
  FE_RETURN_IF_ERROR(
      ToSpan("columns", {const_cast<FeColumn*>(in.columns), in.num_columns}, &columns));
  for (int64_t c = 0; c < columns.size; ++c) {
    input->columns.emplace_back();
    FE_RETURN_IF_ERROR(InColumn(c, ToColumn(columns[c], &input->columns.back())));
  }
  return Status();
}

inline bool IsSameTable(const FeColumn& a, const FeColumn& b) {
  return a.table.data == b.table.data && a.table_rows == b.table_rows && a.dim == b.dim;
}

// Columns of one number must have one table.
template <typename T>
Status ToTableNumbers(const FeGroup& in, GroupInput<T>* input) {
  if (in.num_tables < 0 || in.num_tables > in.num_columns) {
    return InvalidArgument("each of the ", in.num_tables, " tables must have one of the ",
                           in.num_columns, " columns");
  }
  input->num_tables = in.num_tables;
  std::vector<const FeColumn*> earlier;
  for (int64_t c = 0; c < in.num_columns; ++c) {
    const FeColumn& column = in.columns[c];
    if (column.table_number < 0 || column.table_number >= in.num_tables) {
      return InColumn(c, InvalidArgument("table_number must be in [0, ", in.num_tables, "), got ",
                                         column.table_number));
    }
    for (const FeColumn* other : earlier) {
      if (other->table_number != column.table_number) continue;
      if (IsSameTable(*other, column)) continue;
      return InColumn(c, InvalidArgument("table_number ", column.table_number,
                                         " stands for another table in an earlier column"));
    }
    earlier.push_back(&column);
    input->table_numbers.push_back(column.table_number);
  }
  return Status();
}

template <typename T>
Status ToGradients(const FeGroup& in, GroupInput<T>* input) {
  for (int64_t c = 0; c < in.num_columns; ++c) {
    const FeColumn& column = in.columns[c];
    Span<const T> grad;
    FE_RETURN_IF_ERROR(InColumn(
        c, ToSpan("combined_grad", column.combined_grad, column.num_rows, column.dim, &grad)));
    input->grads.push_back({grad.data, column.dim});
  }
  return ToTableNumbers(in, input);
}

}  // namespace fused_embedding::c_api

#endif  // FUSED_EMBEDDING_C_API_GROUP_INPUT_H_
