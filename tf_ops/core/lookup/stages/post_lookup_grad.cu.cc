#include "tf_ops/core/lookup/stages/post_lookup_grad.h"

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/rows/pair_sums.cu.h"

namespace fused_embedding {
namespace {

// scale[row]: what sum(w e) of the row is multiplied by; 0 for a zero row.
template <typename T>
__global__ void ScalesOfCountsKernel(Pairs<T> pairs, const int32_t* __restrict__ num_ids,
                                     ComputeType<T>* __restrict__ scale) {
  using C = ComputeType<T>;
  for (int64_t row = ThreadOfGrid(); row < pairs.num_rows; row += NumThreadsOfGrid()) {
    const C count = static_cast<C>(num_ids[row] > 0 ? num_ids[row] : 0);
    scale[row] = ScaleOfRow(pairs, row, count);
  }
}

// The same from the pairs of each row; `splits` and `order` may be null where the combiner is sum.
template <typename T>
__global__ void ScalesOfPairsKernel(Pairs<T> pairs, const int32_t* __restrict__ splits,
                                    const int32_t* __restrict__ order,
                                    ComputeType<T>* __restrict__ scale) {
  using C = ComputeType<T>;
  for (int64_t row = ThreadOfGrid(); row < pairs.num_rows; row += NumThreadsOfGrid()) {
    const auto pair_at = [&](int64_t i) { return order[i]; };
    const double terms = splits ? TermsOf(pairs, splits[row], splits[row + 1], pair_at).sum : 0;
    scale[row] = static_cast<C>(ScaleOfRow(pairs, row, terms));
  }
}

// Pairs that do not exist come after all others.
template <typename T>
__global__ void UniqueKeysKernel(Pairs<T> pairs, uint32_t* __restrict__ keys) {
  for (int64_t k = ThreadOfGrid(); k < pairs.num_pairs(); k += NumThreadsOfGrid()) {
    keys[k] = static_cast<uint32_t>(pairs.Exists(k) ? pairs.unique_idx[k] : pairs.rows.size);
  }
}

template <typename T>
__global__ void ScalePairsKernel(Pairs<T> pairs, const ComputeType<T>* __restrict__ row_scale,
                                 const T* __restrict__ combined_grad,
                                 ScaledRow<T>* __restrict__ out) {
  for (int64_t k = ThreadOfGrid(); k < pairs.num_pairs(); k += NumThreadsOfGrid()) {
    if (!pairs.Exists(k)) continue;
    const int64_t row = pairs.row_ids[k];
    const ComputeType<T> scale = row_scale[row];
    out[k] = {PassedBack(combined_grad, row, pairs.dim, scale), scale * pairs.weight(k)};
  }
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    ClipPairsKernel(Pairs<T> pairs, int num_lanes, ScaledRow<T>* __restrict__ scaled,
                    ComputeType<T>* __restrict__ projections) {
  const Lanes lanes(num_lanes);
  for (int64_t k = lanes.GroupOfGrid(); k < pairs.num_pairs(); k += lanes.NumGroupsOfGrid()) {
    if (!pairs.Exists(k)) continue;
    ScaledRow<T> pair = scaled[k];
    const ComputeType<T> projection =
        ClipPair<kWidth>(lanes, pairs.rows[pairs.unique_idx[k]], pairs.dim, pairs.max_norm, &pair);
    if (lanes.lane != 0) continue;
    scaled[k] = pair;
    projections[k] = projection;
  }
}

template <int kWidth, typename T>
Status ClipPairs(const GpuExec& exec, const Pairs<T>& pairs, ScaledRow<T>* scaled,
                 ComputeType<T>* projections) {
  const int num_lanes = NumLanes(pairs.dim / kWidth);
  return Launch(exec, pairs.num_pairs() * num_lanes, ClipPairsKernel<kWidth, T>, pairs, num_lanes,
                scaled, projections);
}

template <typename T>
Status PlanScales(const GpuExec& exec, const Pairs<T>& pairs, Span<const int32_t> num_ids,
                  ComputeType<T>* scale) {
  if (!num_ids.empty() && pairs.weights.empty()) {
    return Launch(exec, pairs.num_rows, ScalesOfCountsKernel<T>, pairs, num_ids.data, scale);
  }
  GpuPairGroups by_row;
  if (pairs.combiner != Combiner::kSum) {
    FE_RETURN_IF_ERROR(GroupByRow(exec, pairs, &by_row));
  }
  return Launch(exec, pairs.num_rows, ScalesOfPairsKernel<T>, pairs, by_row.splits.data(),
                by_row.order.data(), scale);
}

}  // namespace

template <typename T>
Status PlanPostLookupGrad(const GpuExec& exec, const Pairs<T>& pairs, Span<const int32_t> num_ids,
                          GpuPostLookupGradPlan<T>* plan) {
  FE_RETURN_IF_ERROR(CheckNumIds(pairs, num_ids));
  FE_RETURN_IF_ERROR(CheckPairSizes(pairs));
  FE_RETURN_IF_ERROR(CheckNumPairs(pairs.rows.size));  // its ids are numbered, as pairs are
  FE_RETURN_IF_ERROR(plan->row_scale.Allocate(exec, pairs.num_rows));
  FE_RETURN_IF_ERROR(PlanScales(exec, pairs, num_ids, plan->row_scale.data()));
  DeviceBuffer<uint32_t> keys;
  FE_RETURN_IF_ERROR(keys.Allocate(exec, pairs.num_pairs()));
  FE_RETURN_IF_ERROR(Launch(exec, pairs.num_pairs(), UniqueKeysKernel<T>, pairs, keys.data()));
  FE_RETURN_IF_ERROR(SortByKey(exec, keys.span(), pairs.rows.size + 1, &plan->by_unique));
  FE_RETURN_IF_ERROR(plan->splits.Allocate(exec, pairs.rows.size + 1));
  return SplitByKey(exec, plan->by_unique.keys.span(), plan->splits.span());
}

template <typename T>
Status RunPostLookupGrad(const GpuExec& exec, const Pairs<T>& pairs,
                         const GpuPostLookupGradPlan<T>& plan, Span<const T> combined_grad,
                         Span<T* const> rows_grad) {
  if (pairs.dim == 0) return Status();
  DeviceBuffer<ScaledRow<T>> scaled;
  DeviceBuffer<ComputeType<T>> projections;
  FE_RETURN_IF_ERROR(scaled.Allocate(exec, pairs.num_pairs()));
  FE_RETURN_IF_ERROR(Launch(exec, pairs.num_pairs(), ScalePairsKernel<T>, pairs,
                            plan.row_scale.data(), combined_grad.data, scaled.data()));
  const bool is_full_width = HasFullWidth<T>(
      pairs.dim, pairs.address_bits | reinterpret_cast<uintptr_t>(combined_grad.data));
  if (pairs.max_norm >= 0) {
    FE_RETURN_IF_ERROR(projections.Allocate(exec, pairs.num_pairs()));
    FE_RETURN_IF_ERROR(
        is_full_width ? ClipPairs<kFullWidth<T>>(exec, pairs, scaled.data(), projections.data())
                      : ClipPairs<1>(exec, pairs, scaled.data(), projections.data()));
  }
  SumTable<T> table;
  table.num_unique = pairs.rows.size;
  table.max_pairs = pairs.num_pairs();
  table.dim = pairs.dim;
  table.is_full_width = is_full_width;
  table.sink.out_rows = rows_grad.data;
  return SumPairs<T>(exec,
                     {scaled.data(), plan.by_unique.keys.data(), plan.by_unique.order.data(),
                      plan.splits.data(), projections.data(), pairs.rows.data},
                     {table});
}

#define FE_INSTANTIATE(T)                                                                  \
  template Status PlanPostLookupGrad(const GpuExec&, const Pairs<T>&, Span<const int32_t>, \
                                     GpuPostLookupGradPlan<T>*);                           \
  template Status RunPostLookupGrad(const GpuExec&, const Pairs<T>&,                       \
                                    const GpuPostLookupGradPlan<T>&, Span<const T>,        \
                                    Span<T* const>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
