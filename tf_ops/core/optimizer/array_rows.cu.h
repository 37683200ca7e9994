// Steps on rows of arrays in device memory.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_ARRAY_ROWS_CU_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_ARRAY_ROWS_CU_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/optimizer/sparse_apply.h"
#include "tf_ops/core/optimizer/update_rows.cu.h"

namespace fused_embedding {

// A table and its slots in device memory.
template <typename T>
struct ArrayTable {
  using Value = T;
  using SlotValue = T;
  static constexpr bool kHasNumbers = false;

  T* values = nullptr;  // [num_rows, dim]
  // In the rule's order: T [num_rows, dim] each, or ComputeType<T> [num_rows] of a rule with a
  // number a row.
  void* slots[kMaxArraySlots] = {};
  int64_t dim = 0;

  __device__ T* value(int64_t row) const { return values + row * dim; }
  __device__ T* slot(int64_t row, int k) const { return static_cast<T*>(slots[k]) + row * dim; }
  __device__ ComputeType<T>* number(int64_t row) const {
    return static_cast<ComputeType<T>*>(slots[0]) + row;
  }
};

template <typename T>
uint64_t AddressBits(const ArrayTable<T>& table, int64_t num_slots) {
  uint64_t bits = reinterpret_cast<uintptr_t>(table.values);
  for (int64_t k = 0; k < num_slots; ++k) bits |= reinterpret_cast<uintptr_t>(table.slots[k]);
  return bits;
}

template <typename T>
using ArrayRows = RowsUpdate<ArrayTable<T>>;

// UpdateRows, compiled once.
template <typename T>
Status UpdateArrayRows(const GpuExec& exec, const RuleInfo& rule,
                       Span<const double> hyperparameters, const std::vector<ArrayRows<T>>& tables);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_ARRAY_ROWS_CU_H_
