// The gradient of stage 5 with respect to the weights of its pairs, one value a pair.
//
// With e the clipped embedding of a pair, w its weight, g the gradient of its row's result, and s
// the sum over the row's pairs of w (e g):
//   sum    e g
//   mean   (e g) / W - s / W^2                  W = sum(w)
//   sqrtn  (e g) / sqrt(Q) - w s / Q^(3/2)      Q = sum(w^2)
// and 0 where the denominator is 0 or the row's result is fixed to zero.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_STAGES_POST_LOOKUP_WEIGHTS_GRAD_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_STAGES_POST_LOOKUP_WEIGHTS_GRAD_H_

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/lookup/rows/pairs.h"
#include "tf_ops/core/lookup/stages/post_lookup.h"

namespace fused_embedding {

// `plan` is PlanPostLookup's for the same pairs. Writes weights_grad [num_pairs].
template <typename T>
void RunPostLookupWeightsGrad(const CpuExec& exec, const Pairs<T>& pairs,
                              const PostLookupPlan<T>& plan, const CombinedGrad<T>& combined_grad,
                              Span<ComputeType<T>> weights_grad);

// The same on a GPU, for a plan of its own PlanPostLookup; does not wait. A pair that does not
// exist gets 0.
template <typename T>
Status RunPostLookupWeightsGrad(const GpuExec& exec, const Pairs<T>& pairs,
                                const GpuPostLookupPlan<T>& plan,
                                const CombinedGrad<T>& combined_grad,
                                Span<ComputeType<T>> weights_grad);

// A pair of a row: its position among all, negative where it was dropped, and its weight.
template <typename C>
struct RowPair {
  int64_t position = 0;
  C weight = 0;
};

// Makes of (e g), which weights_grad holds for each pair of a row, what the formulas say, for pairs
// pair_of(begin) ... pair_of(end - 1). For the CPU and the GPU.
template <typename C, typename PairOf>
FE_INLINE void FinishRowWeightsGrad(Combiner combiner, bool is_zero_row, int64_t begin, int64_t end,
                                    const PairOf& pair_of, C* weights_grad) {
  if (combiner == Combiner::kSum && !is_zero_row) return;
  C denominator_terms = 0;
  C weighted_dots = 0;
  for (int64_t i = begin; i < end; ++i) {
    const RowPair<C> pair = pair_of(i);
    if (pair.position < 0) continue;
    weighted_dots += pair.weight * weights_grad[pair.position];
    denominator_terms += DenominatorTerm(combiner, pair.weight);
  }
  const C scale = is_zero_row ? C{0} : RowScale(combiner, denominator_terms);
  for (int64_t i = begin; i < end; ++i) {
    const RowPair<C> pair = pair_of(i);
    if (pair.position < 0) continue;
    C* grad = weights_grad + pair.position;
    if (scale == 0) {
      *grad = 0;
      continue;
    }
    const C denominator_grad =
        combiner == Combiner::kMean ? scale * scale : pair.weight * scale * scale * scale;
    *grad = scale * *grad - denominator_grad * weighted_dots;
  }
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_STAGES_POST_LOOKUP_WEIGHTS_GRAD_H_
