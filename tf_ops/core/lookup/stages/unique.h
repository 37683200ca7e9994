// Stage 2: the distinct ids of a batch, in the order of their first occurrence.
//
//   ids [7, 3, 7, 9]  ->  unique_ids [7, 3, 9]   unique_idx [0, 1, 0, 2]   counts [2, 1, 1]
//
// Every value is a legal id. Same result for any number of threads. Source: tf.unique_with_counts.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_STAGES_UNIQUE_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_STAGES_UNIQUE_H_

#include <cstdint>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

template <typename Id>
struct UniquePlan {
  Buffer<Id> unique_ids;  // [n], of which the first num_unique are set
  int64_t num_unique = 0;
};

// Writes `unique_idx` [n] and finds the unique ids. Fails only without memory, or when `n` ids
// cannot be numbered by Index. Id and Index are int32_t or int64_t.
template <typename Id, typename Index>
Status PlanUnique(const CpuExec& exec, Span<const Id> ids, Span<Index> unique_idx,
                  UniquePlan<Id>* plan);

// Writes the ids [num_unique] and how often each occurs [num_unique].
template <typename Id, typename Index>
void RunUnique(const UniquePlan<Id>& plan, Span<const Index> unique_idx, Span<Id> unique_ids,
               Span<Index> counts);

// The error of more ids than an index of so many bits numbers.
Status TooManyForIndex(int64_t num_ids, int64_t index_bits);

// The same on a GPU, with the same result. Plan waits once, for the number of unique ids.
struct GpuUniquePlan {
  DeviceBuffer<uint32_t> first;   // [n] position of the first occurrence of each id
  DeviceBuffer<int32_t> numbers;  // [n + 1] number of first occurrences before each position
  int64_t num_unique = 0;
};

template <typename Id, typename Index>
struct GpuUniqueOutput {
  Span<Index> unique_idx;  // [n]
  Span<Id> unique_ids;     // [num_unique]
  Span<Index> counts;      // [num_unique]
};

template <typename Id, typename Index>
Status PlanUnique(const GpuExec& exec, Span<const Id> ids, GpuUniquePlan* plan);

template <typename Id, typename Index>
Status RunUnique(const GpuExec& exec, Span<const Id> ids, const GpuUniquePlan& plan,
                 const GpuUniqueOutput<Id, Index>& out);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_STAGES_UNIQUE_H_
