// Grouped lookups in tables by key in the memory of a GPU.

#include <limits>
#include <numeric>
#include <utility>

#include "tf_ops/c_api/table_groups.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/group/table_group_lookup.cu.h"

namespace fused_embedding::c_api {
namespace {

template <typename T>
using GpuTableGroup = TableGroup<T, GpuTable>;

// The rows of the array are the keys' first values.
template <typename T>
Status MakeTable(const GpuExec& gpu, const GroupColumn<T>& column,
                 std::unique_ptr<GpuTable>* table) {
  GpuTableConfig config;
  config.layout.value_type = kValueTypeOf<T>;
  config.layout.dim = column.dim;
  config.initializer.kind = InitializerKind::kMatrix;
  config.max_bytes = std::numeric_limits<int64_t>::max();
  std::vector<char>& matrix = config.initializer.matrix;
  matrix.resize(static_cast<size_t>(column.table_rows * config.layout.value_bytes()));
  FE_RETURN_IF_ERROR(
      CopyToHost<char>(gpu, reinterpret_cast<const char*>(column.table), AsSpan(matrix)));
  FE_RETURN_IF_ERROR(WaitForStream(gpu));
  FE_RETURN_IF_ERROR(GpuTable::Create(gpu, config, table));

  std::vector<int64_t> rows(static_cast<size_t>(column.table_rows));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  DeviceBuffer<int64_t> keys, handles;
  FE_RETURN_IF_ERROR(Upload<int64_t>(gpu, AsSpan(rows), &keys));
  FE_RETURN_IF_ERROR(handles.Allocate(gpu, keys.size()));
  GpuTable* const tables[] = {table->get()};
  const int64_t end = keys.size(), step = 0;
  const GpuTableKeys in = {{tables, 1}, {&end, 1}, keys.span()};
  GpuInsertPlan plan;
  FE_RETURN_IF_ERROR(PlanGpuInsert(gpu, in, &plan));
  return RunGpuFindOrInsert(gpu, in, {{}, {}, {&step, 1}}, plan, {}, {handles.span()});
}

// A lookup that inserts nothing: keys, rows and combined rows.
template <typename T>
Status LookUp(const GpuExec& gpu, const GpuTableGroup<T>& group, const FeArray* outputs) {
  const GroupInput<T>& input = group.input;
  std::vector<DeviceBuffer<int32_t>> memory(input.columns.size());
  std::vector<Span<int32_t>> positions;
  std::vector<CombinedOut<T>> combined;
  for (size_t c = 0; c < memory.size(); ++c) {
    FE_RETURN_IF_ERROR(memory[c].Allocate(gpu, input.columns[c].num_pairs()));
    positions.push_back(memory[c].span());
    combined.push_back({static_cast<T*>(outputs[c].data), input.columns[c].dim});
  }
  std::vector<GpuTable*> tables;
  for (const auto& table : group.tables) tables.push_back(table.get());
  GpuTableGroupInput<T> in;
  in.keys = {AsSpan(input.columns), AsSpan(input.table_numbers), AsSpan(std::as_const(positions)),
             input.num_tables};
  in.tables = AsSpan(std::as_const(tables));
  GpuTableGroupPlan plan;
  FE_RETURN_IF_ERROR(fused_embedding::PlanTableGroupLookup(gpu, in, &plan));
  DeviceBuffer<int64_t> handles;
  FE_RETURN_IF_ERROR(handles.Allocate(gpu, plan.num_keys()));
  std::vector<DeviceBuffer<T>> row_memory(tables.size());
  std::vector<T*> rows;
  for (size_t t = 0; t < tables.size(); ++t) {
    const int64_t dim = tables[t]->config().layout.dim;
    FE_RETURN_IF_ERROR(row_memory[t].Allocate(gpu, plan.num_keys(t) * dim));
    rows.push_back(row_memory[t].data());
  }
  return RunTableGroupLookup<T>(
      gpu, in, plan,
      {handles.span(), AsSpan(std::as_const(rows)), AsSpan(std::as_const(combined))});
}

}  // namespace

Status PlanGpuTableGroupLookup(const GpuExec& gpu, const FeGroup& in, FePlanned* planned) {
  return VisitType(in.dtype, [&](auto value) {
    using T = decltype(value);
    auto group = std::make_shared<GpuTableGroup<T>>();
    const auto make = [&](const GroupColumn<T>& column, auto* table) {
      return MakeTable(gpu, column, table);
    };
    FE_RETURN_IF_ERROR(MakeTables(in, make, group.get()));
    for (const GroupColumn<T>& column : group->input.columns) {
      planned->sizes.push_back(column.num_rows * column.dim);
    }
    planned->run = [&gpu, group](const FeArray* outputs) {
      return LookUp<T>(gpu, *group, outputs);
    };
    return Status();
  });
}

}  // namespace fused_embedding::c_api
