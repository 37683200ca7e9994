#include "tf_ops/core/optimizer/array_rows.cu.h"

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/rows/row_sum.cu.h"
#include "tf_ops/core/optimizer/rules.h"

namespace fused_embedding {
namespace {

// Rows that a group of lanes loads before it updates the first of them: with their gradients and
// slots, four loads or more are in flight for each thread. Two rows with two slots spill.
constexpr int RowsPerGroup(int64_t num_slots) { return num_slots < 2 ? 2 : 1; }
template <typename Rule>
constexpr int kRowsPerGroup = RowsPerGroup(Rule::kSlots.size());

template <typename T>
struct RowsWork {
  ArrayRows<T> step;
  bool is_full_width = false;
  int num_lanes = 1;
  Range blocks;
};

// The rows of a group of lanes, -1 where there are no more.
template <int kNumRows>
struct RowsOfGroup {
  int64_t first;
  int64_t rows[kNumRows];

  template <typename T>
  __device__ RowsOfGroup(const Lanes& lanes, const RowsWork<T>& work) {
    first = lanes.GroupOf(work.blocks) * kNumRows;
#pragma unroll
    for (int i = 0; i < kNumRows; ++i) {
      rows[i] = first + i < work.step.num_rows ? work.step.rows[first + i] : -1;
    }
  }
};

template <int kWidth, typename Rule, typename T>
__device__ void UpdatePartByPart(const Rule& rule, const RowsWork<T>& work) {
  using Vector = RowVector<T, kWidth>;
  const ArrayTable<T>& table = work.step.table;
  const Lanes lanes(work.num_lanes);
  constexpr int kNumRows = kRowsPerGroup<Rule>;
  const RowsOfGroup<kNumRows> group(lanes, work);
  for (int64_t offset = lanes.lane * kWidth; offset < table.dim; offset += lanes.size * kWidth) {
    Vector grads[kNumRows];
    PartOfRow<kWidth, Rule, T> parts[kNumRows];
#pragma unroll
    for (int i = 0; i < kNumRows; ++i) {
      if (group.rows[i] < 0) continue;
      grads[i] = Vector::LoadFrom(work.step.grads + (group.first + i) * table.dim + offset);
      parts[i].LoadFrom(table, group.rows[i], offset);
    }
#pragma unroll
    for (int i = 0; i < kNumRows; ++i) {
      if (group.rows[i] < 0) continue;
      T grad[kWidth];
      grads[i].Unpack(grad);
      parts[i].Update(rule, grad);
      parts[i].CopyTo(table, group.rows[i], offset);
    }
  }
}

template <int kWidth, typename Rule, typename T>
__device__ void UpdateScaledRows(const Rule& rule, const RowsWork<T>& work) {
  using C = ComputeType<T>;
  using Vector = RowVector<T, kWidth>;
  const ArrayTable<T>& table = work.step.table;
  const Lanes lanes(work.num_lanes);
  constexpr int kNumRows = kRowsPerGroup<Rule>;
  const RowsOfGroup<kNumRows> group(lanes, work);
  const T* grads = work.step.grads + group.first * table.dim;
  C scales[kNumRows];
#pragma unroll
  for (int i = 0; i < kNumRows; ++i) {
    if (group.rows[i] < 0) continue;
    const T* grad = grads + i * table.dim;
    const C number = *NumberOfRow(table, group.rows[i]);
    const C square = Dot<kWidth>(lanes, grad, grad, table.dim);
    scales[i] = ScaleOfRow(rule, lanes, table, group.rows[i], square, number);
  }
  for (int64_t offset = lanes.lane * kWidth; offset < table.dim; offset += lanes.size * kWidth) {
#pragma unroll
    for (int i = 0; i < kNumRows; ++i) {
      if (group.rows[i] < 0) continue;
      T* row = table.values + group.rows[i] * table.dim + offset;
      T values[kWidth], grad[kWidth];
      Vector::LoadFrom(row).Unpack(values);
      Vector::LoadFrom(grads + i * table.dim + offset).Unpack(grad);
      rule.UpdateValues(values, grad, kWidth, scales[i]);
      Vector::Of(values).CopyTo(row);
    }
  }
}

template <int kWidth, typename Rule, typename T>
__device__ void UpdateRowsOfGroup(const Rule& rule, const RowsWork<T>& work) {
  if constexpr (kScalesRows<Rule>) {
    UpdateScaledRows<kWidth>(rule, work);
  } else {
    UpdatePartByPart<kWidth>(rule, work);
  }
}

template <typename Rule, typename T>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    UpdateRowsKernel(Rule rule, const RowsWork<T>* __restrict__ works, int64_t num_works) {
  const RowsWork<T>& work = ItemOfBlock(works, num_works, &RowsWork<T>::blocks);
  if (work.is_full_width) {
    UpdateRowsOfGroup<kFullWidth<T>>(rule, work);
  } else {
    UpdateRowsOfGroup<1>(rule, work);
  }
}

template <typename T>
struct RowsWorks {
  const RowsWork<T>* works;
  int64_t num_works, num_blocks;
};

template <typename T>
using LaunchRule = Status (*)(const GpuExec& exec, const double* hyperparameters,
                              const RowsWorks<T>& in);

// A rule is what its constructor makes of the hyperparameters, here on the host.
template <typename Rule, typename T>
Status LaunchUpdate(const GpuExec& exec, const double* hyperparameters, const RowsWorks<T>& in) {
  return LaunchBlocks(exec, in.num_blocks, UpdateRowsKernel<Rule, T>, Rule(hyperparameters),
                      in.works, in.num_works);
}

// Null for a rule that has numbers a row beside others.
template <typename Rule, typename T>
constexpr LaunchRule<T> LaunchOf() {
  if constexpr (WorksValueByValue<Rule>() || kScalesRows<Rule>) {
    return LaunchUpdate<Rule, T>;
  } else {
    return nullptr;
  }
}

template <typename T>
LaunchRule<T> LaunchOfRule(int64_t rule) {
#define FE_LAUNCH(Rule) LaunchOf<Rule<ComputeType<T>>, T>(),
  static constexpr LaunchRule<T> kLaunches[] = {FE_FOR_EACH_RULE(FE_LAUNCH)};
#undef FE_LAUNCH
  return kLaunches[rule];
}

}  // namespace

template <typename T>
Status UpdateArrayRows(const GpuExec& exec, const RuleInfo& rule,
                       Span<const double> hyperparameters,
                       const std::vector<ArrayRows<T>>& tables) {
  const LaunchRule<T> launch = LaunchOfRule<T>(rule.index);
  if (launch == nullptr) {
    return MakeStatus(StatusCode::kUnimplemented, "rule ", rule.name,
                      " has no kernel for GPUs; place the table on the CPU");
  }
  FE_RETURN_IF_ERROR(CheckHyperparameters(rule, hyperparameters));
  const int64_t num_slots_like_values = rule.works_value_by_value ? rule.num_slots : 0;
  std::vector<RowsWork<T>> works;
  int64_t num_blocks = 0;
  for (const ArrayRows<T>& step : tables) {
    const int64_t dim = step.table.dim;
    if (step.num_rows == 0 || dim == 0) continue;
    RowsWork<T> work;
    work.step = step;
    work.is_full_width = HasFullWidth<T>(dim, AddressBits(step.table, num_slots_like_values) |
                                                  reinterpret_cast<uintptr_t>(step.grads));
    work.num_lanes = NumLanes<T>(dim, work.is_full_width);
    const int64_t rows_per_block = RowsPerGroup(rule.num_slots) * (kBlockSize / work.num_lanes);
    work.blocks = TakeBlocks(step.num_rows, rows_per_block, &num_blocks);
    works.push_back(work);
  }
  DeviceBuffer<RowsWork<T>> device_works;
  FE_RETURN_IF_ERROR(Upload<RowsWork<T>>(exec, AsSpan(works), &device_works));
  return launch(exec, hyperparameters.data, {device_works.data(), device_works.size(), num_blocks});
}

#define FE_INSTANTIATE(T)                                                              \
  template Status UpdateArrayRows(const GpuExec&, const RuleInfo&, Span<const double>, \
                                  const std::vector<ArrayRows<T>>&);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
