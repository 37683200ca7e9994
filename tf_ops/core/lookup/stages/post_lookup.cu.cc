#include "tf_ops/core/lookup/stages/post_lookup.h"

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/rows/row_sum.cu.h"

namespace fused_embedding {
namespace {

template <int kWidth, typename T>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    ClipScaleKernel(Pairs<T> pairs, int num_lanes, ComputeType<T>* __restrict__ clip_scale) {
  using C = ComputeType<T>;
  const Lanes lanes(num_lanes);
  for (int64_t u = lanes.GroupOfGrid(); u < pairs.rows.size; u += lanes.NumGroupsOfGrid()) {
    const C scale = ClipScaleOf<kWidth>(lanes, pairs.rows[u], pairs.dim, pairs.max_norm);
    if (lanes.lane == 0) clip_scale[u] = scale;
  }
}

// The pairs of a row, as a plan has them.
template <typename T>
struct RowGroups {
  const int32_t* splits;
  const int32_t* order;
  const ComputeType<T>* clip_scale;  // or null: 1
};

template <int kWidth, typename T>
__global__ void __launch_bounds__(kBlockSize, kMinCombineBlocks<T>)
    CombineKernel(Pairs<T> pairs, RowGroups<T> groups, int num_lanes, T* __restrict__ combined,
                  int32_t* __restrict__ num_ids) {
  using C = ComputeType<T>;
  const Lanes lanes(num_lanes);
  const auto row_of = [&](int64_t i) {
    const int64_t k = groups.order[i];
    const int32_t u = pairs.unique_idx[k];
    const C clip = groups.clip_scale ? groups.clip_scale[u] : C{1};
    return ScaledRow<T>{pairs.rows[u], pairs.weight(k) * clip};
  };
  for (int64_t row = lanes.GroupOfGrid(); row < pairs.num_rows; row += lanes.NumGroupsOfGrid()) {
    const int64_t first = groups.splits[row];
    int64_t stop = pairs.IsZeroRow(row) ? first : groups.splits[row + 1];
    if (lanes.lane == 0) num_ids[row] = static_cast<int32_t>(stop - first);
    RowTerms terms = {stop - first, static_cast<double>(stop - first)};
    if (pairs.combiner != Combiner::kSum && !pairs.weights.empty()) {
      const auto pair_at = [&](int64_t i) { return groups.order[i]; };
      terms = TermsOf(pairs, first, stop, pair_at);
    }
    if (HasZeroDenominator(pairs.combiner, terms.sum)) stop = first;
    const Divisor<C> divisor = stop == first ? Divisor<C>() : DivisorOfRow(pairs, terms);
    StoreRowSum<kWidth>(lanes, pairs.dim, {first, stop}, row_of, divisor,
                        combined + row * pairs.dim);
  }
}

template <int kWidth, typename T>
Status PlanClip(const GpuExec& exec, const Pairs<T>& pairs, GpuPostLookupPlan<T>* plan) {
  const int num_lanes = NumLanes(pairs.dim / kWidth);
  return Launch(exec, pairs.rows.size * num_lanes, ClipScaleKernel<kWidth, T>, pairs, num_lanes,
                plan->clip_scale.data());
}

template <int kWidth, typename T>
Status Combine(const GpuExec& exec, const Pairs<T>& pairs, const GpuPostLookupPlan<T>& plan,
               Span<T> combined, Span<int32_t> num_ids) {
  const RowGroups<T> groups = {plan.by_row.splits.data(), plan.by_row.order.data(),
                               plan.clip_scale.data()};
  const int num_lanes = NumLanes(pairs.dim / kWidth);
  return Launch(exec, pairs.num_rows * num_lanes, CombineKernel<kWidth, T>, pairs, groups,
                num_lanes, combined.data, num_ids.data);
}

}  // namespace

template <typename T>
Status PlanPostLookup(const GpuExec& exec, const Pairs<T>& pairs, GpuPostLookupPlan<T>* plan) {
  FE_RETURN_IF_ERROR(CheckPairSizes(pairs));
  FE_RETURN_IF_ERROR(GroupByRow(exec, pairs, &plan->by_row));
  if (pairs.max_norm < 0) return Status();
  FE_RETURN_IF_ERROR(plan->clip_scale.Allocate(exec, pairs.rows.size));
  return HasFullWidth<T>(pairs.dim, pairs.address_bits) ? PlanClip<kFullWidth<T>>(exec, pairs, plan)
                                                        : PlanClip<1>(exec, pairs, plan);
}

template <typename T>
Status RunPostLookup(const GpuExec& exec, const Pairs<T>& pairs, const GpuPostLookupPlan<T>& plan,
                     Span<T> combined, Span<int32_t> num_ids) {
  const uint64_t bits = pairs.address_bits | reinterpret_cast<uintptr_t>(combined.data);
  return HasFullWidth<T>(pairs.dim, bits)
             ? Combine<kFullWidth<T>>(exec, pairs, plan, combined, num_ids)
             : Combine<1>(exec, pairs, plan, combined, num_ids);
}

#define FE_INSTANTIATE(T)                                                                     \
  template Status PlanPostLookup(const GpuExec&, const Pairs<T>&, GpuPostLookupPlan<T>*);     \
  template Status RunPostLookup(const GpuExec&, const Pairs<T>&, const GpuPostLookupPlan<T>&, \
                                Span<T>, Span<int32_t>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
