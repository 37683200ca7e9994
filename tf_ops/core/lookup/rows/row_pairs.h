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
      : pairs_(pairs), by_row_(by_row), clip_scale_(clip_scale) {}

  FE_INLINE int64_t begin(int64_t row) const { return by_row_.begin(row); }
  FE_INLINE int64_t end(int64_t row) const { return by_row_.end(row); }
  FE_INLINE int64_t pair(int64_t i) const { return by_row_.pair(i); }
  FE_INLINE const T* row(int64_t pair) const { return pairs_.row(pair); }
  FE_INLINE C factor(int64_t pair) const { return pairs_.weight(pair) * clip_scale(pair); }
  FE_INLINE C clip_scale(int64_t pair) const {
    return clip_scale_.empty() ? C{1} : clip_scale_[pairs_.unique_idx[pair]];
  }

  FE_INLINE RowTerms<C> Terms(int64_t begin, int64_t end) const {
    return TermsOf(pairs_, begin, end, [&](int64_t i) FE_INLINE_LAMBDA { return pair(i); });
  }
  // Prefetches the embedding at position i if i is below `end`.
  FE_INLINE void Prefetch(int64_t i, int64_t end) const {
    if (i < end) PrefetchRow(row(pair(i)), pairs_.dim * static_cast<int64_t>(sizeof(T)));
  }

 private:
  const Pairs<T>& pairs_;
  const PairGroups& by_row_;
  Span<const C> clip_scale_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_PAIRS_H_
