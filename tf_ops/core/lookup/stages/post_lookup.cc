#include "tf_ops/core/lookup/stages/post_lookup.h"

#include <algorithm>

#include "tf_ops/core/lookup/rows/row_math.h"
#include "tf_ops/core/lookup/rows/row_pairs.h"

namespace fused_embedding {
namespace {

// Pairs ahead whose embedding is fetched. The rows were gathered into one block of memory a moment
// ago, so a short distance is enough.
constexpr int64_t kPrefetchDistance = 8;

template <typename T>
class RowCombiner {
 public:
  using C = ComputeType<T>;

  RowCombiner(const Pairs<T>& pairs, const PostLookupPlan<T>& plan)
      : pairs_(pairs), by_row_(pairs, plan.by_row, plan.clip_scale.span()) {}

  FE_INLINE void Combine(int64_t begin, int64_t end, T* combined, int32_t* num_ids) const {
    const int64_t last_pair = by_row_.end(end - 1);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = by_row_.begin(row);
      int64_t stop = pairs_.IsZeroRow(row) ? first : by_row_.end(row);
      num_ids[row] = static_cast<int32_t>(stop - first);
      const C terms = SumOfTerms(first, stop);
      if (HasZeroDenominator(pairs_.combiner, terms)) stop = first;
      const C scale = RowScale(pairs_.combiner, terms);
      ForEachBlock(pairs_.dim,
                   [&](auto width_constant, int64_t column, int64_t width) FE_INLINE_LAMBDA {
                     constexpr int64_t kWidth = decltype(width_constant)::value;
                     C sums[kBlockWidth] = {};
                     for (int64_t i = first; i < stop; ++i) {
                       by_row_.Prefetch(i + kPrefetchDistance, last_pair);
                       const int64_t k = by_row_.pair(i);
                       AddScaled<kWidth>(by_row_.factor(k), by_row_.row(k) + column, width, sums);
                     }
                     StoreScaled<kWidth>(scale, sums, width, combined + row * pairs_.dim + column);
                   });
    }
  }

 private:
  // What RowScale makes the row's factor of.
  FE_INLINE C SumOfTerms(int64_t first, int64_t stop) const {
    if (pairs_.combiner == Combiner::kSum) return 1;
    if (pairs_.weights.empty()) return static_cast<C>(stop - first);
    return by_row_.Terms(first, stop).sum;
  }

  const Pairs<T>& pairs_;
  RowPairs<T> by_row_;
};

}  // namespace

template <typename T>
Status PlanPostLookup(const CpuExec& exec, const Pairs<T>& pairs, PostLookupPlan<T>* plan) {
  using C = ComputeType<T>;
  FE_RETURN_IF_ERROR(CheckPairs(pairs));
  FE_RETURN_IF_ERROR(CheckRowIds(pairs.row_ids, pairs.num_rows));
  FE_RETURN_IF_ERROR(GroupByRow(pairs.row_ids, pairs.num_rows, &plan->by_row));
  if (pairs.max_norm < 0) return Status();
  FE_RETURN_IF_ERROR(plan->clip_scale.Allocate(pairs.rows.size));
  const Span<C> clip_scale = plan->clip_scale.span();
  exec.ParallelFor(pairs.rows.size, 5 + pairs.dim / 4, [&](int64_t begin, int64_t end) {
    WithSimd([&]() FE_INLINE_LAMBDA {
      for (int64_t u = begin; u < end; ++u) {
        clip_scale[u] = ClipScale(L2Norm(pairs.rows[u], pairs.dim), static_cast<C>(pairs.max_norm));
      }
    });
  });
  return Status();
}

template <typename T>
void RunPostLookup(const CpuExec& exec, const Pairs<T>& pairs, const PostLookupPlan<T>& plan,
                   Span<T> combined, Span<int32_t> num_ids) {
  const RowCombiner<T> combiner(pairs, plan);
  const int64_t pairs_in_row = 1 + pairs.num_pairs() / std::max<int64_t>(pairs.num_rows, 1);
  const int64_t row_ns = pairs_in_row * (4 + pairs.dim / 8);
  exec.ParallelFor(pairs.num_rows, row_ns, [&](int64_t begin, int64_t end) {
    WithSimd([&]() FE_INLINE_LAMBDA { combiner.Combine(begin, end, combined.data, num_ids.data); });
  });
}

#define FE_INSTANTIATE(T)                                                                         \
  template Status PlanPostLookup(const CpuExec&, const Pairs<T>&, PostLookupPlan<T>*);            \
  template void RunPostLookup(const CpuExec&, const Pairs<T>&, const PostLookupPlan<T>&, Span<T>, \
                              Span<int32_t>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
