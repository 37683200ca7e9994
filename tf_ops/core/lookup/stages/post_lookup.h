// Stage 5: embeddings of the unique ids become one vector a row.
//
//   rows [[1, 2], [3, 4]]   unique_idx [0, 1, 1]   row_ids [0, 0, 2]   num_rows 3   mean
//   combined [[2, 3], [0, 0], [3, 4]]              num_ids [2, 0, 1]
//
// Each embedding is clipped to max_norm, then weighted, then combined. A row without pairs is zero.
// Source: tf.nn.safe_embedding_lookup_sparse, tf.clip_by_norm.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_STAGES_POST_LOOKUP_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_STAGES_POST_LOOKUP_H_

#include <cstdint>

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {

template <typename T>
struct PostLookupPlan {
  PairGroups by_row;
  Buffer<ComputeType<T>> clip_scale;  // [num_unique] factor of max_norm, or empty: off
};

// Validates `pairs` and groups them by row.
template <typename T>
Status PlanPostLookup(const CpuExec& exec, const Pairs<T>& pairs, PostLookupPlan<T>* plan);

// Writes `combined` [num_rows, dim] and the number of pairs of each row, 0 for zero rows.
template <typename T>
void RunPostLookup(const CpuExec& exec, const Pairs<T>& pairs, const PostLookupPlan<T>& plan,
                   Span<T> combined, Span<int32_t> num_ids);

// The same on a GPU, but a pair that does not exist is left out, where the CPU names it: then
// neither of them has to wait.
template <typename T>
struct GpuPostLookupPlan {
  GpuPairGroups by_row;
  DeviceBuffer<ComputeType<T>> clip_scale;  // [num_unique] factor of max_norm, or empty: off
};

template <typename T>
Status PlanPostLookup(const GpuExec& exec, const Pairs<T>& pairs, GpuPostLookupPlan<T>* plan);

template <typename T>
Status RunPostLookup(const GpuExec& exec, const Pairs<T>& pairs, const GpuPostLookupPlan<T>& plan,
                     Span<T> combined, Span<int32_t> num_ids);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_STAGES_POST_LOOKUP_H_
