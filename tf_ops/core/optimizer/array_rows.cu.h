// The rules on a GPU: one step on rows of arrays, by groups of lanes. A lane calls the rule on its
// 16 bytes of a row, as the CPU does on the whole row.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_ARRAY_ROWS_CU_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_ARRAY_ROWS_CU_H_

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/optimizer/rule.h"
#include "tf_ops/core/optimizer/rule_info.h"
#include "tf_ops/core/optimizer/sparse_apply.h"

namespace fused_embedding {

// A table and its slots in device memory.
template <typename T>
struct ArrayTable {
  T* values = nullptr;  // [num_rows, dim]
  // In the rule's order: T [num_rows, dim] each, or ComputeType<T> [num_rows] of a rule with a
  // number a row.
  void* slots[kMaxArraySlots] = {};
  int64_t dim = 0;

  template <typename Number>
  __device__ Number* slot(int k) const {
    return static_cast<Number*>(slots[k]);
  }
};

// What one step does to a table.
template <typename T>
struct ArrayRows {
  ArrayTable<T> table;
  const int64_t* rows = nullptr;  // [num_rows] distinct rows that the table has
  const T* grads = nullptr;       // [num_rows, dim]
  int64_t num_rows = 0;
};

// One step of the rule on those rows of all `tables`, which must not overlap. Does not wait.
// Unimplemented for a rule that has numbers a row beside others.
template <typename T>
Status UpdateArrayRows(const GpuExec& exec, const RuleInfo& rule,
                       Span<const double> hyperparameters, const std::vector<ArrayRows<T>>& tables);

// The bitwise or of where a table and `num_slots` slots of its shape begin.
template <typename T>
uint64_t AddressBits(const ArrayTable<T>& table, int64_t num_slots) {
  uint64_t bits = reinterpret_cast<uintptr_t>(table.values);
  for (int64_t k = 0; k < num_slots; ++k) bits |= reinterpret_cast<uintptr_t>(table.slots[k]);
  return bits;
}

// kWidth values of a row from `offset` on, and of the row's slots: those of one lane. For rules
// that work value by value.
template <int kWidth, typename Rule, typename T>
class PartOfRow {
 public:
  using C = ComputeType<T>;
  using Vector = RowVector<T, kWidth>;

  __device__ void LoadFrom(const ArrayTable<T>& table, int64_t row, int64_t offset) {
    const int64_t first = row * table.dim + offset;
    value_ = Vector::LoadFrom(table.values + first);
#pragma unroll
    for (int k = 0; k < kNumSlots; ++k) {
      slots_[k] = Vector::LoadFrom(table.template slot<T>(k) + first);
    }
  }
  __device__ void CopyTo(const ArrayTable<T>& table, int64_t row, int64_t offset) const {
    const int64_t first = row * table.dim + offset;
    value_.CopyTo(table.values + first);
#pragma unroll
    for (int k = 0; k < kNumSlots; ++k) {
      slots_[k].CopyTo(table.template slot<T>(k) + first);
    }
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
      T narrow[kWidth];
      slots_[k].Unpack(narrow);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) wide[k][i] = Load(narrow[i]);
    }
    rule.Update(values, grad, kWidth, wide[kSlot]...);
#pragma unroll
    for (int k = 0; k < kNumSlots; ++k) {
      T narrow[kWidth];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) Store(wide[k][i], &narrow[i]);
      slots_[k] = Vector::Of(narrow);
    }
    value_ = Vector::Of(values);
  }

  Vector value_;
  Vector slots_[kNumSlots + 1];
};

// Whether the rule has a number a row and no other slot, so that it has RowScale.
template <typename Rule>
constexpr bool kScalesRows = Rule::kSlots.size() == 1 && !WorksValueByValue<Rule>();

// Where the row's number is.
template <typename T>
__device__ inline ComputeType<T>* NumberOfRow(const ArrayTable<T>& table, int64_t row) {
  return table.template slot<ComputeType<T>>(0) + row;
}

// What the row's number, which each lane has loaded, becomes by a gradient whose sum of squares is
// `square`; returns the scale for UpdateValues. For all lanes, after which all of them go on.
template <typename Rule, typename T, typename C = ComputeType<T>>
__device__ inline C ScaleOfRow(const Rule& rule, const Lanes& lanes, const ArrayTable<T>& table,
                               int64_t row, C square, C number) {
  const C scale = rule.RowScale(square, table.dim, &number);
  // No lane may write before another has read.
  lanes.Sync();
  if (lanes.lane == 0) *NumberOfRow(table, row) = number;
  return scale;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_ARRAY_ROWS_CU_H_
