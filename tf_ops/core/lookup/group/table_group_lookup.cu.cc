#include "tf_ops/core/lookup/group/table_group_lookup.cu.h"

#include <utility>

#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {
namespace {

struct KeysOfTable {
  int64_t end;
  int64_t* keys;
  int64_t* handles;
};

__global__ void CopyKeysKernel(const KeysOfTable* __restrict__ tables, int64_t num_tables,
                               Span<const int64_t> keys, const int64_t* __restrict__ handles) {
  for (int64_t i = ThreadOfGrid(); i < keys.size; i += NumThreadsOfGrid()) {
    const int64_t t = ItemOfPosition(num_tables, i, [&](int64_t j) { return tables[j].end; });
    const int64_t to = i - (t == 0 ? 0 : tables[t - 1].end);
    tables[t].keys[to] = keys[i];
    tables[t].handles[to] = handles[i];
  }
}

template <typename T>
Status CheckTables(const GpuTableGroupInput<T>& in) {
  if (in.tables.size != in.keys.num_tables) {
    return InvalidArgument("there must be ", in.keys.num_tables, " tables, got ", in.tables.size);
  }
  for (int64_t c = 0; c < in.keys.columns.size; ++c) {
    const RowLayout& layout = in.tables[in.keys.table_of_column[c]]->config().layout;
    if (layout.value_type != kValueTypeOf<T>) {
      return InvalidArgument("the values of the table of column ", c, " are of another type");
    }
    if (layout.dim != in.keys.columns[c].dim) {
      return InvalidArgument("column ", c, " has dim ", in.keys.columns[c].dim,
                             ", but its table has ", layout.dim);
    }
  }
  return Status();
}

GpuTableKeys KeysOf(Span<GpuTable* const> tables, const GpuTableGroupPlan& plan) {
  return {tables, AsSpan(plan.keys.ends), {plan.keys.keys.data(), plan.num_keys()}};
}

template <typename T>
GpuUses UsesOf(const GpuTableGroupInput<T>& in, const GpuTableGroupPlan& plan) {
  return {{plan.keys.counts.data(), plan.num_keys()}, {}, in.steps};
}

}  // namespace

template <typename T>
Status PlanTableGroupLookup(const GpuExec& exec, const GpuTableGroupInput<T>& in,
                            GpuTableGroupPlan* plan) {
  FE_RETURN_IF_ERROR(CheckTables(in));
  FE_RETURN_IF_ERROR(FindGroupKeys(exec, in.keys, &plan->keys));
  if (!in.insert) return Status();
  return PlanGpuTraining(exec, KeysOf(in.tables, *plan), UsesOf(in, *plan), &plan->training);
}

Status CopyKeysOfTables(const GpuExec& exec, const GpuTableGroupPlan& plan,
                        Span<const int64_t> handles, Span<int64_t* const> keys_of_table,
                        Span<int64_t* const> handles_of_table) {
  std::vector<KeysOfTable> tables;
  for (const int64_t end : plan.keys.ends) {
    const auto t = static_cast<int64_t>(tables.size());
    tables.push_back({end, keys_of_table[t], handles_of_table[t]});
  }
  DeviceBuffer<KeysOfTable> uploaded;
  FE_RETURN_IF_ERROR(Upload<KeysOfTable>(exec, AsSpan(tables), &uploaded));
  const Span<const int64_t> keys = {plan.keys.keys.data(), plan.num_keys()};
  return Launch(exec, keys.size, CopyKeysKernel, uploaded.data(), uploaded.size(), keys,
                handles.data);
}

template <typename T>
std::vector<GroupColumn<T>> PositionColumns(const GroupKeysInput<T>& in,
                                            const GpuTableGroupPlan& plan, Span<T* const> rows) {
  std::vector<GroupColumn<T>> columns;
  for (int64_t c = 0; c < in.columns.size; ++c) {
    const int64_t t = in.table_of_column[c];
    const Span<const int32_t> positions = in.positions[c];
    columns.push_back(PositionColumn<T>(in.columns[c], positions,
                                        {plan.keys.default_positions[static_cast<size_t>(c)]},
                                        rows[t], plan.num_keys(static_cast<size_t>(t))));
  }
  return columns;
}

template <typename T>
Status RunTableGroupLookup(const GpuExec& exec, const GpuTableGroupInput<T>& in,
                           const GpuTableGroupPlan& plan, const GpuTableGroupOutput<T>& out) {
  std::vector<char*> values;
  for (T* rows : out.rows) values.push_back(reinterpret_cast<char*>(rows));
  const GpuTableKeys keys = KeysOf(in.tables, plan);
  const GpuLookupOutput found = {out.handles, AsSpan(std::as_const(values))};
  FE_RETURN_IF_ERROR(
      in.insert ? RunGpuTraining(exec, keys, UsesOf(in, plan), plan.training, out.evicted, found)
                : FindInGpuTables(exec, keys, found));
  const std::vector<GroupColumn<T>> columns = PositionColumns(in.keys, plan, out.rows);
  GpuGroupPlan<T> group;
  FE_RETURN_IF_ERROR(PlanGroupLookup<T>(exec, plan.keys.orders, AsSpan(columns), &group));
  return RunGroupLookup<T>(exec, AsSpan(columns), group, out.combined);
}

#define FE_INSTANTIATE(T)                                                                       \
  template Status PlanTableGroupLookup(const GpuExec&, const GpuTableGroupInput<T>&,            \
                                       GpuTableGroupPlan*);                                     \
  template Status RunTableGroupLookup(const GpuExec&, const GpuTableGroupInput<T>&,             \
                                      const GpuTableGroupPlan&, const GpuTableGroupOutput<T>&); \
  template std::vector<GroupColumn<T>> PositionColumns(const GroupKeysInput<T>&,                \
                                                       const GpuTableGroupPlan&, Span<T* const>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
