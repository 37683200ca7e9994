#include "tf_ops/core/lookup/stages/post_lookup.h"

#include <algorithm>

#include "tf_ops/core/lookup/rows/row_math.h"
#include "tf_ops/core/lookup/rows/row_pairs.h"
#include "tf_ops/core/lookup/rows/row_sum.h"

namespace fused_embedding {
namespace {

// Pairs ahead whose embedding is fetched. The rows were gathered into one block of memory a moment
// ago, so a short distance is enough.
constexpr int64_t kPairsAhead = 8;

template <typename T, int64_t kVectorBytes>
class RowCombiner {
 public:
  using C = ComputeType<T>;

  RowCombiner(const Pairs<T>& pairs, const PostLookupPlan<T>& plan)
      : pairs_(pairs), by_row_(pairs, plan.by_row, plan.clip_scale.span()) {}

  FE_INLINE void CountIds(int64_t begin, int64_t end, int32_t* num_ids) const {
    for (int64_t row = begin; row < end; ++row) num_ids[row] = static_cast<int32_t>(NumPairs(row));
  }

  FE_INLINE void Combine(int64_t begin, int64_t end, T* combined) const {
    ForEachRowSum<kVectorBytes, C>(
        pairs_.dim, [&](auto num_values, int64_t offset) FE_INLINE_LAMBDA {
          CombineValues<num_values()>(begin, end, offset, combined + offset);
        });
  }

 private:
  FE_INLINE int64_t NumPairs(int64_t row) const {
    return pairs_.IsZeroRow(row) ? 0 : by_row_.end(row) - by_row_.begin(row);
  }

  // Some values of all rows. A loop over rows for each number of values has the registers for
  // itself: with all these loops in a loop over rows, rows of 16 took 1.15 times as long.
  template <int64_t kNumValues>
  FE_INLINE void CombineValues(int64_t begin, int64_t end, int64_t offset, T* out) const {
    using Sum = RowSum<kNumValues, kVectorBytes, C>;
    const RowPairs<T> by_row = by_row_;  // a copy: its fields stay in registers
    const Combiner combiner = pairs_.combiner;
    const bool has_weights = !pairs_.weights.empty();
    const int64_t dim = pairs_.dim, last_pair = by_row.end(end - 1);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = by_row.begin(row);
      int64_t stop = first + NumPairs(row);
      const double terms = by_row.SumOfTerms(combiner, first, stop);
      if (HasZeroDenominator(combiner, terms)) stop = first;
      const auto add = [&](int64_t i, Sum* to) FE_INLINE_LAMBDA {
        by_row.Prefetch(i + kPairsAhead, last_pair, dim);
        const int64_t k = by_row.pair(i);
        to->template Add<true>(by_row.factor(k), by_row.row(k) + offset);
      };
      Sum sum;
      AddUpTerms(first, stop, add, &sum);
      if (stop > first) {
        sum.Divide(
            DivisorOf(static_cast<C>(Denominator(combiner, terms)), stop - first, has_weights));
      }
      sum.Store(out + row * dim);
    }
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
  const int64_t pairs_in_row = 1 + pairs.num_pairs() / std::max<int64_t>(pairs.num_rows, 1);
  const int64_t row_ns = pairs_in_row * (4 + pairs.dim / 8);
  exec.ParallelFor(pairs.num_rows, row_ns, [&](int64_t begin, int64_t end) {
    WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
      const RowCombiner<T, vector_bytes()> combiner(pairs, plan);
      combiner.CountIds(begin, end, num_ids.data);
      combiner.Combine(begin, end, combined.data);
    });
  });
}

#define FE_INSTANTIATE(T)                                                                         \
  template Status PlanPostLookup(const CpuExec&, const Pairs<T>&, PostLookupPlan<T>*);            \
  template void RunPostLookup(const CpuExec&, const Pairs<T>&, const PostLookupPlan<T>&, Span<T>, \
                              Span<int32_t>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
