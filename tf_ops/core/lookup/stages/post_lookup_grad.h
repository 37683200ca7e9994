// Stage 6: the gradient of stage 5, one row per unique id.
//
//   combined_grad [[6, 6], [0, 0], [1, 2]]   unique_idx [0, 1, 1]   row_ids [0, 0, 2]   mean
//   rows_grad [[3, 3], [4, 5]]
//
// The derivative of max_norm is the true one, with its projection term, also where the norm equals
// max_norm: for c = max_norm / |e|,  de = c (g - e (e g) / |e|^2). Source: TensorFlow's autodiff of
// tf.clip_by_norm. Occurrences of an id are added in input order.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_STAGES_POST_LOOKUP_GRAD_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_STAGES_POST_LOOKUP_GRAD_H_

#include <cstdint>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {

template <typename T>
struct PostLookupGradPlan {
  bool is_grouped = true;            // false: small enough for one thread, which needs no groups
  PairGroups by_unique;              // where is_grouped
  Buffer<ComputeType<T>> row_scale;  // [num_rows]
};

// Validates `pairs` and groups them by unique id. `num_ids` [num_rows] is stage 5's; it replaces
// the counting of pairs where there are no weights, and may be empty.
template <typename T>
Status PlanPostLookupGrad(const Pairs<T>& pairs, Span<const int32_t> num_ids,
                          PostLookupGradPlan<T>* plan);

// Writes rows_grad[u] [dim] for each unique id. An id without pairs gets zeros.
template <typename T>
void RunPostLookupGrad(const CpuExec& exec, const Pairs<T>& pairs,
                       const PostLookupGradPlan<T>& plan, Span<const T> combined_grad,
                       Span<T* const> rows_grad);

// Checks the length of `num_ids` where it is used.
template <typename T>
Status CheckNumIds(const Pairs<T>& pairs, Span<const int32_t> num_ids);

// The same on a GPU, up to the order of additions, which the number of pairs alone decides. As in
// stage 5, a pair that does not exist is left out, and neither of them waits.
template <typename T>
struct GpuPostLookupGradPlan {
  SortedKeys by_unique;
  DeviceBuffer<int32_t> splits;            // [num_unique + 1]
  DeviceBuffer<ComputeType<T>> row_scale;  // [num_rows]
};

template <typename T>
Status PlanPostLookupGrad(const GpuExec& exec, const Pairs<T>& pairs, Span<const int32_t> num_ids,
                          GpuPostLookupGradPlan<T>* plan);

template <typename T>
Status RunPostLookupGrad(const GpuExec& exec, const Pairs<T>& pairs,
                         const GpuPostLookupGradPlan<T>& plan, Span<const T> combined_grad,
                         Span<T* const> rows_grad);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_STAGES_POST_LOOKUP_GRAD_H_
