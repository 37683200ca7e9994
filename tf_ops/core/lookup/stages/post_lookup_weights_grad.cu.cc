#include "tf_ops/core/lookup/stages/post_lookup_weights_grad.h"

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/rows/row_sum.cu.h"

namespace fused_embedding {
namespace {

// (e g) of each pair; `clip_scale` may be null: 1.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    DotPairsKernel(Pairs<T> pairs, const ComputeType<T>* __restrict__ clip_scale,
                   CombinedGrad<T> combined_grad, int num_lanes,
                   ComputeType<T>* __restrict__ weights_grad) {
  using C = ComputeType<T>;
  const Lanes lanes(num_lanes);
  for (int64_t k = lanes.GroupOfGrid(); k < pairs.num_pairs(); k += lanes.NumGroupsOfGrid()) {
    C dot = 0;
    if (pairs.Exists(k)) {
      const int32_t u = pairs.unique_idx[k];
      const T* grad = combined_grad.row(pairs.row_ids[k]);
      dot = Dot<kWidth>(lanes, pairs.rows[u], grad, pairs.dim);
      if (clip_scale) dot *= clip_scale[u];
    }
    if (lanes.lane == 0) weights_grad[k] = dot;
  }
}

template <typename T>
__global__ void FinishRowsKernel(Pairs<T> pairs, const int32_t* __restrict__ splits,
                                 const int32_t* __restrict__ order, ComputeType<T>* weights_grad) {
  using C = ComputeType<T>;
  for (int64_t row = ThreadOfGrid(); row < pairs.num_rows; row += NumThreadsOfGrid()) {
    const auto pair_of = [&](int64_t i) {
      const int64_t k = order[i];
      return RowPair<C>{k, pairs.weight(k)};
    };
    FinishRowWeightsGrad(pairs.combiner, pairs.IsZeroRow(row), splits[row], splits[row + 1],
                         pair_of, weights_grad);
  }
}

template <int kWidth, typename T>
Status DotPairs(const GpuExec& exec, const Pairs<T>& pairs, const GpuPostLookupPlan<T>& plan,
                const CombinedGrad<T>& combined_grad, ComputeType<T>* weights_grad) {
  const int num_lanes = NumLanes(pairs.dim / kWidth);
  return Launch(exec, pairs.num_pairs() * num_lanes, DotPairsKernel<kWidth, T>, pairs,
                plan.clip_scale.data(), combined_grad, num_lanes, weights_grad);
}

}  // namespace

template <typename T>
Status RunPostLookupWeightsGrad(const GpuExec& exec, const Pairs<T>& pairs,
                                const GpuPostLookupPlan<T>& plan,
                                const CombinedGrad<T>& combined_grad,
                                Span<ComputeType<T>> weights_grad) {
  const uint64_t bits = pairs.address_bits | combined_grad.address_bits();
  FE_RETURN_IF_ERROR(
      HasFullWidth<T>(pairs.dim, bits)
          ? DotPairs<kFullWidth<T>>(exec, pairs, plan, combined_grad, weights_grad.data)
          : DotPairs<1>(exec, pairs, plan, combined_grad, weights_grad.data));
  // Nothing is left to do then.
  if (pairs.combiner == Combiner::kSum && pairs.is_zero_row.empty()) return Status();
  return Launch(exec, pairs.num_rows, FinishRowsKernel<T>, pairs, plan.by_row.splits.data(),
                plan.by_row.order.data(), weights_grad.data);
}

#define FE_INSTANTIATE(T)                                                                       \
  template Status RunPostLookupWeightsGrad(const GpuExec&, const Pairs<T>&,                     \
                                           const GpuPostLookupPlan<T>&, const CombinedGrad<T>&, \
                                           Span<ComputeType<T>>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
