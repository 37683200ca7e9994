// Gathered pairs in the order of their rows, as stage 5 reads them on the CPU. Positions number
// this order: begin(row) to end(row) are the positions of a row, pair(i) is the pair at a position,
// row(pair) its embedding, and factor(pair) the embedding's factor: the weight times the factor of
// max_norm. All FE_INLINE, for WithSimd.
//
// group_lookup.cc reads the columns of a group without such a class, with which weighted rows were
// up to 6 % slower.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_PAIRS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_PAIRS_H_

#include <cstdint>

#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {

template <typename T>
class RowPairs {
 public:
  using C = ComputeType<T>;

  // `clip_scale` [num_unique] is the factor of max_norm, or empty: off.
  RowPairs(const Pairs<T>& pairs, const PairGroups& by_row, Span<const C> clip_scale)
      : splits_(by_row.splits.span().data),
        order_(by_row.is_identity ? nullptr : by_row.order.span().data),
        unique_idx_(pairs.unique_idx.data),
        rows_(pairs.rows.data),
        weights_(pairs.weights.empty() ? nullptr : pairs.weights.data),
        clip_scale_(clip_scale.empty() ? nullptr : clip_scale.data) {}

  FE_INLINE int64_t begin(int64_t row) const { return splits_[row]; }
  FE_INLINE int64_t end(int64_t row) const { return splits_[row + 1]; }
  FE_INLINE int64_t pair(int64_t i) const { return order_ ? order_[i] : i; }
  FE_INLINE const T* row(int64_t pair) const { return rows_[unique_idx_[pair]]; }
  FE_INLINE C factor(int64_t pair) const { return weight(pair) * clip_scale(pair); }
  FE_INLINE C weight(int64_t pair) const { return weights_ ? weights_[pair] : C{1}; }
  FE_INLINE C clip_scale(int64_t pair) const {
    return clip_scale_ ? clip_scale_[unique_idx_[pair]] : C{1};
  }

  // Of what Denominator makes the denominator of the pairs at [begin, end).
  FE_INLINE double SumOfTerms(Combiner combiner, int64_t begin, int64_t end) const {
    if (combiner == Combiner::kSum || !weights_) return static_cast<double>(end - begin);
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += DenominatorTerm(combiner, weight(pair(i)));
    return sum;
  }
  // Prefetches the embedding at position i if i is below `end`.
  FE_INLINE void Prefetch(int64_t i, int64_t end, int64_t dim) const {
    if (i < end) PrefetchRow(row(pair(i)), dim * static_cast<int64_t>(sizeof(T)));
  }

 private:
  const int32_t* splits_;
  const int32_t* order_;  // null: pairs are in the order of their rows
  const int32_t* unique_idx_;
  const T* const* rows_;
  const C* weights_;     // null: all 1
  const C* clip_scale_;  // null: off
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_PAIRS_H_
