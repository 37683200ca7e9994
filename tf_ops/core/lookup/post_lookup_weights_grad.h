// The gradient of stage 5 with respect to the weights of its pairs, one value a pair.
//
// With e the clipped embedding of a pair, w its weight, g the gradient of its row's result, and s
// the sum over the row's pairs of w (e g):
//   sum    e g
//   mean   (e g) / W - s / W^2                  W = sum(w)
//   sqrtn  (e g) / sqrt(Q) - w s / Q^(3/2)      Q = sum(w^2)
// and 0 where the denominator is 0 or the row's result is fixed to zero.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_POST_LOOKUP_WEIGHTS_GRAD_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_POST_LOOKUP_WEIGHTS_GRAD_H_

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/lookup/pairs.h"
#include "tf_ops/core/lookup/post_lookup.h"

namespace fused_embedding {

// `plan` is PlanPostLookup's for the same pairs. Writes weights_grad [num_pairs].
template <typename T>
void RunPostLookupWeightsGrad(const CpuExec& exec, const Pairs<T>& pairs,
                              const PostLookupPlan<T>& plan, const CombinedGrad<T>& combined_grad,
                              Span<ComputeType<T>> weights_grad);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_POST_LOOKUP_WEIGHTS_GRAD_H_
