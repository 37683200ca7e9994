// The pairs of a grouped lookup's gradient, sorted for sums that go elsewhere than to memory.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_GRAD_CU_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_GRAD_CU_H_

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/lookup/group/group_lookup_grad.h"
#include "tf_ops/core/lookup/rows/pair_sums.cu.h"

namespace fused_embedding {

template <typename T>
struct SortedGroupPairs {
  SortedPairs<T> pairs;  // of the plan's memory, and of this
  DeviceBuffer<int32_t> splits;
  DeviceBuffer<const T*> embeddings;  // or empty: no column clips
  SortedKeys by_unique;
};

// Sorts the pairs of all tables, and writes the unique ids of `grads` [num_tables].
template <typename T>
Status SortGroupPairs(const GpuExec& exec, const GpuGroupGradPlan<T>& plan,
                      Span<const TableGrad<T>> grads, SortedGroupPairs<T>* sorted);

// A table of the plan for SumPairs. `out_bits`: the bitwise or of what the sink moves rows to.
template <typename T, typename Sink>
SumTable<T, Sink> SumTableOf(const GpuTableGradPlan<T>& table, uint64_t out_bits,
                             const Sink& sink) {
  return {table.first_unique,
          table.num_unique,
          table.num_positions,
          table.dim,
          HasFullWidth<T>(table.dim, table.address_bits | out_bits),
          sink};
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_GRAD_CU_H_
