#include "tf_ops/core/lookup/stages/post_lookup_weights_grad.h"

#include <algorithm>

#include "tf_ops/core/lookup/rows/row_math.h"
#include "tf_ops/core/lookup/rows/row_pairs.h"

namespace fused_embedding {
namespace {

template <typename T>
FE_INLINE void RowWeightsGrad(const Pairs<T>& pairs, const PostLookupPlan<T>& plan, int64_t row,
                              const T* row_grad, Span<ComputeType<T>> weights_grad) {
  using C = ComputeType<T>;
  const RowPairs<T> by_row(pairs, plan.by_row, plan.clip_scale.span());
  const int64_t begin = by_row.begin(row), end = by_row.end(row);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t k = by_row.pair(i);
    weights_grad[k] = by_row.clip_scale(k) * Dot<C>(by_row.row(k), row_grad, pairs.dim);
  }
  const auto pair_of = [&](int64_t i) FE_INLINE_LAMBDA {
    const int64_t k = by_row.pair(i);
    return RowPair<C>{k, pairs.weight(k)};
  };
  FinishRowWeightsGrad(pairs.combiner, pairs.IsZeroRow(row), begin, end, pair_of,
                       weights_grad.data);
}

}  // namespace

template <typename T>
void RunPostLookupWeightsGrad(const CpuExec& exec, const Pairs<T>& pairs,
                              const PostLookupPlan<T>& plan, const CombinedGrad<T>& combined_grad,
                              Span<ComputeType<T>> weights_grad) {
  const int64_t pairs_in_row = 1 + pairs.num_pairs() / std::max<int64_t>(pairs.num_rows, 1);
  const int64_t row_ns = pairs_in_row * (8 + pairs.dim / 4);
  exec.ParallelFor(pairs.num_rows, row_ns, [&](int64_t begin, int64_t end) {
    WithSimd([&]() FE_INLINE_LAMBDA {
      for (int64_t row = begin; row < end; ++row) {
        RowWeightsGrad(pairs, plan, row, combined_grad.row(row), weights_grad);
      }
    });
  });
}

#define FE_INSTANTIATE(T)                                                                  \
  template void RunPostLookupWeightsGrad(const CpuExec&, const Pairs<T>&,                  \
                                         const PostLookupPlan<T>&, const CombinedGrad<T>&, \
                                         Span<ComputeType<T>>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
