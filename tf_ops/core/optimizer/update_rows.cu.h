// The rules on a GPU: one step on rows of tables, by groups of lanes. A lane calls the rule on its
// 16 bytes of a row, as the CPU does on the whole row.
//
// Kernels find the parts of a row by a Table:
//
//   Value, SlotValue   the types of its values, and of the numbers of its slots
//   dim
//   value(row)         where the values of a row begin
//   slot(row, k)       the same of slot k, where it has a number for each value
//   number(row)        of a rule that has one number a row, that
//   kHasNumbers        whether slot(row, k) may also be one number a row
//   AddressBits(table, num_slots)
//                      the bitwise or of what values, and so many slots, begin at

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_UPDATE_ROWS_CU_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_UPDATE_ROWS_CU_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/rows/row_sum.cu.h"
#include "tf_ops/core/optimizer/rule.h"
#include "tf_ops/core/optimizer/rule_info.h"
#include "tf_ops/core/optimizer/rules.h"

namespace fused_embedding {

// What one step does to a table.
template <typename Table>
struct RowsUpdate {
  using Value = typename Table::Value;

  Table table;
  const int64_t* rows = nullptr;  // [num_rows] distinct rows that the table has; negative: none
  const Value* grads = nullptr;   // [num_rows, dim]
  int64_t num_rows = 0;
};

// As many values as 16 bytes of a slot have numbers.
template <typename Table>
constexpr int kRowWidth = kFullWidth<typename Table::SlotValue>;

// kWidth values of a row from `offset` on, and of the row's slots: those of one lane. For rules
// that work value by value.
template <int kWidth, typename Rule, typename Table>
class PartOfRow {
 public:
  using T = typename Table::Value;
  using SlotValue = typename Table::SlotValue;
  using C = ComputeType<T>;

  __device__ void LoadFrom(const Table& table, int64_t row, int64_t offset) {
    value_ = RowVector<T, kWidth>::LoadFrom(table.value(row) + offset);
#pragma unroll
    for (int k = 0; k < kNumSlots; ++k) {
      slots_[k] = RowVector<SlotValue, kWidth>::LoadFrom(table.slot(row, k) + offset);
    }
  }
  __device__ void CopyTo(const Table& table, int64_t row, int64_t offset) const {
    value_.CopyTo(table.value(row) + offset);
#pragma unroll
    for (int k = 0; k < kNumSlots; ++k) slots_[k].CopyTo(table.slot(row, k) + offset);
  }
  __device__ void Update(const Rule& rule, const T (&grad)[kWidth]) {
    Step(rule, grad, std::make_index_sequence<kNumSlots>());
  }

 private:
  static constexpr int kNumSlots = static_cast<int>(Rule::kSlots.size());

  // Slots of 16 bits are computed on as C and rounded once, as on the CPU.
  template <size_t... kSlot>
  __device__ void Step(const Rule& rule, const T (&grad)[kWidth], std::index_sequence<kSlot...>) {
    T values[kWidth];
    C wide[kNumSlots + 1][kWidth];
    value_.Unpack(values);
#pragma unroll
    for (int k = 0; k < kNumSlots; ++k) {
      SlotValue narrow[kWidth];
      slots_[k].Unpack(narrow);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) wide[k][i] = Load(narrow[i]);
    }
    rule.Update(values, grad, kWidth, wide[kSlot]...);
#pragma unroll
    for (int k = 0; k < kNumSlots; ++k) {
      SlotValue narrow[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) Store(wide[k][i], &narrow[i]);
      slots_[k] = RowVector<SlotValue, kWidth>::Of(narrow);
    }
    value_ = RowVector<T, kWidth>::Of(values);
  }

  RowVector<T, kWidth> value_;
  RowVector<SlotValue, kWidth> slots_[kNumSlots + 1];
};

// Whether the rule has a number a row and no other slot, so that it has RowScale.
template <typename Rule>
constexpr bool kScalesRows = Rule::kSlots.size() == 1 && !WorksValueByValue<Rule>();

// What the row's number, which each lane has loaded, becomes by a gradient whose sum of squares is
// `square`; returns the scale for UpdateValues. For all lanes, after which all of them go on.
template <typename Rule, typename Table, typename C>
__device__ inline C ScaleOfRow(const Rule& rule, const Lanes& lanes, const Table& table,
                               int64_t row, C square, C number) {
  const C scale = rule.RowScale(square, table.dim, &number);
  // No lane may write before another has read.
  lanes.Sync();
  if (lanes.lane == 0) *table.number(row) = number;
  return scale;
}

// Rows that a group of lanes loads before it updates the first of them: with their gradients and
// slots, four loads or more are in flight for each thread. Two rows with two slots spill.
constexpr int RowsPerGroup(int64_t num_slots) { return num_slots < 2 ? 2 : 1; }
template <typename Rule>
constexpr int kRowsPerGroup = RowsPerGroup(Rule::kSlots.size());

template <typename Table>
struct RowsWork {
  RowsUpdate<Table> step;
  bool is_full_width = false;
  int num_lanes = 1;
  Range blocks = {};
};

// The rows of a group of lanes, -1 where there are no more.
template <int kNumRows>
struct RowsOfGroup {
  int64_t first;
  int64_t rows[kNumRows];

  template <typename Table>
  __device__ RowsOfGroup(const Lanes& lanes, const RowsWork<Table>& work) {
    first = lanes.GroupOf(work.blocks) * kNumRows;
#pragma unroll
    for (int i = 0; i < kNumRows; ++i) {
      rows[i] = first + i < work.step.num_rows ? work.step.rows[first + i] : -1;
    }
  }
};

template <int kWidth, typename Rule, typename Table>
__device__ void UpdatePartByPart(const Rule& rule, const RowsWork<Table>& work) {
  using T = typename Table::Value;
  const Table& table = work.step.table;
  const Lanes lanes(work.num_lanes);
  constexpr int kNumRows = kRowsPerGroup<Rule>;
  const RowsOfGroup<kNumRows> group(lanes, work);
  for (int64_t offset = lanes.lane * kWidth; offset < table.dim; offset += lanes.size * kWidth) {
    RowVector<T, kWidth> grads[kNumRows];
    PartOfRow<kWidth, Rule, Table> parts[kNumRows];
#pragma unroll
    for (int i = 0; i < kNumRows; ++i) {
      if (group.rows[i] < 0) continue;
      const T* grad = work.step.grads + (group.first + i) * table.dim + offset;
      grads[i] = RowVector<T, kWidth>::LoadFrom(grad);
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

template <int kWidth, typename Rule, typename Table>
__device__ void UpdateScaledRows(const Rule& rule, const RowsWork<Table>& work) {
  using T = typename Table::Value;
  using C = ComputeType<T>;
  using Vector = RowVector<T, kWidth>;
  const Table& table = work.step.table;
  const Lanes lanes(work.num_lanes);
  constexpr int kNumRows = kRowsPerGroup<Rule>;
  const RowsOfGroup<kNumRows> group(lanes, work);
  const T* grads = work.step.grads + group.first * table.dim;
  C scales[kNumRows];
#pragma unroll
  for (int i = 0; i < kNumRows; ++i) {
    if (group.rows[i] < 0) continue;
    const T* grad = grads + i * table.dim;
    const C number = *table.number(group.rows[i]);
    const C square = Dot<kWidth>(lanes, grad, grad, table.dim);
    scales[i] = ScaleOfRow(rule, lanes, table, group.rows[i], square, number);
  }
  for (int64_t offset = lanes.lane * kWidth; offset < table.dim; offset += lanes.size * kWidth) {
#pragma unroll
    for (int i = 0; i < kNumRows; ++i) {
      if (group.rows[i] < 0) continue;
      T* row = table.value(group.rows[i]) + offset;
      T values[kWidth], grad[kWidth];
      Vector::LoadFrom(row).Unpack(values);
      Vector::LoadFrom(grads + i * table.dim + offset).Unpack(grad);
      rule.UpdateValues(values, grad, kWidth, scales[i]);
      Vector::Of(values).CopyTo(row);
    }
  }
}

// Whether the rule has a slot like the values and then a number a row, which counts: what it
// becomes does not depend on the gradient, so that each lane finds it on its own.
template <typename Rule>
constexpr bool kCountsRows = Rule::kSlots.size() == 2 && Rule::kSlots[0].width == SlotWidth::kDim &&
                             Rule::kSlots[1].width == SlotWidth::kOne;

template <int kWidth, typename Rule, typename Table>
__device__ void UpdateCountedRows(const Rule& rule, const RowsWork<Table>& work) {
  using T = typename Table::Value;
  using C = ComputeType<T>;
  using SlotVector = RowVector<typename Table::SlotValue, kWidth>;
  const Table& table = work.step.table;
  const Lanes lanes(work.num_lanes);
  static_assert(kRowsPerGroup<Rule> == 1);
  const RowsOfGroup<1> group(lanes, work);
  const int64_t row = group.rows[0];
  if (row < 0) return;
  const C old_number = *table.slot(row, 1);
  C number = old_number;
  for (int64_t offset = lanes.lane * kWidth; offset < table.dim; offset += lanes.size * kWidth) {
    T values[kWidth], grad[kWidth];
    C slots[kWidth];
    RowVector<T, kWidth>::LoadFrom(table.value(row) + offset).Unpack(values);
    RowVector<T, kWidth>::LoadFrom(work.step.grads + group.first * table.dim + offset).Unpack(grad);
    SlotVector::LoadFrom(table.slot(row, 0) + offset).Unpack(slots);
    number = old_number;
    rule.Update(values, grad, kWidth, slots, &number);
    SlotVector::Of(slots).CopyTo(table.slot(row, 0) + offset);
    RowVector<T, kWidth>::Of(values).CopyTo(table.value(row) + offset);
  }
  // No lane may write before another has read.
  lanes.Sync();
  if (lanes.lane == 0) *table.slot(row, 1) = number;
}

template <int kWidth, typename Rule, typename Table>
__device__ void UpdateRowsOfGroup(const Rule& rule, const RowsWork<Table>& work) {
  if constexpr (kScalesRows<Rule>) {
    UpdateScaledRows<kWidth>(rule, work);
  } else if constexpr (kCountsRows<Rule>) {
    UpdateCountedRows<kWidth>(rule, work);
  } else {
    UpdatePartByPart<kWidth>(rule, work);
  }
}

template <typename Rule, typename Table>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    UpdateRowsKernel(Rule rule, const RowsWork<Table>* __restrict__ works, int64_t num_works) {
  const RowsWork<Table>& work = ItemOfBlock(works, num_works, &RowsWork<Table>::blocks);
  if (work.is_full_width) {
    UpdateRowsOfGroup<kRowWidth<Table>>(rule, work);
  } else {
    UpdateRowsOfGroup<1>(rule, work);
  }
}

template <typename Table>
struct RowsWorks {
  const RowsWork<Table>* works;
  int64_t num_works, num_blocks;
};

template <typename Table>
using LaunchRule = Status (*)(const GpuExec& exec, const double* hyperparameters,
                              const RowsWorks<Table>& in);

// A rule is what its constructor makes of the hyperparameters, here on the host.
template <typename Rule, typename Table>
Status LaunchUpdate(const GpuExec& exec, const double* hyperparameters,
                    const RowsWorks<Table>& in) {
  return LaunchBlocks(exec, in.num_blocks, UpdateRowsKernel<Rule, Table>, Rule(hyperparameters),
                      in.works, in.num_works);
}

// Null for a rule that has numbers a row beside others, where the table has not.
template <typename Rule, typename Table>
constexpr LaunchRule<Table> LaunchOf() {
  constexpr bool kIsCounted = kCountsRows<Rule> && Table::kHasNumbers;
  if constexpr (WorksValueByValue<Rule>() || kScalesRows<Rule> || kIsCounted) {
    return LaunchUpdate<Rule, Table>;
  } else {
    return nullptr;
  }
}

template <typename Table>
LaunchRule<Table> LaunchOfRule(int64_t rule) {
  using C = ComputeType<typename Table::Value>;
#define FE_LAUNCH(Rule) LaunchOf<Rule<C>, Table>(),
  static constexpr LaunchRule<Table> kLaunches[] = {FE_FOR_EACH_RULE(FE_LAUNCH)};
#undef FE_LAUNCH
  return kLaunches[rule];
}

// One step of the rule on those rows of all `tables`, which must not overlap. Does not wait.
// Unimplemented for a rule that has numbers a row beside others, where the table has not.
template <typename Table>
Status UpdateRows(const GpuExec& exec, const RuleInfo& rule, Span<const double> hyperparameters,
                  const std::vector<RowsUpdate<Table>>& tables) {
  const LaunchRule<Table> launch = LaunchOfRule<Table>(rule.index);
  if (launch == nullptr) {
    return MakeStatus(StatusCode::kUnimplemented, "rule ", rule.name,
                      " has no kernel for GPUs; place the table on the CPU");
  }
  FE_RETURN_IF_ERROR(CheckHyperparameters(rule, hyperparameters));
  const int64_t num_slots_like_values = rule.num_slots - (rule.works_value_by_value ? 0 : 1);
  std::vector<RowsWork<Table>> works;
  int64_t num_blocks = 0;
  for (const RowsUpdate<Table>& step : tables) {
    constexpr int kWidth = kRowWidth<Table>;
    const int64_t dim = step.table.dim;
    if (step.num_rows == 0 || dim == 0) continue;
    const uint64_t bits =
        AddressBits(step.table, num_slots_like_values) | reinterpret_cast<uintptr_t>(step.grads);
    RowsWork<Table> work;
    work.step = step;
    work.is_full_width = dim % kWidth == 0 && bits % 16 == 0;
    work.num_lanes = NumLanes(work.is_full_width ? dim / kWidth : dim);
    const int64_t rows_per_block = RowsPerGroup(rule.num_slots) * (kBlockSize / work.num_lanes);
    work.blocks = TakeBlocks(step.num_rows, rows_per_block, &num_blocks);
    works.push_back(work);
  }
  DeviceBuffer<RowsWork<Table>> device_works;
  FE_RETURN_IF_ERROR(Upload<RowsWork<Table>>(exec, AsSpan(works), &device_works));
  return launch(exec, hyperparameters.data, {device_works.data(), device_works.size(), num_blocks});
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_UPDATE_ROWS_CU_H_
