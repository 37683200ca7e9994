// The gradient of one embedding: the sum over the pairs that look it up, shared by the gradients of
// stage 5 and of grouped lookups. All FE_INLINE, for WithSimd.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_GRAD_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_GRAD_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tf_ops/core/lookup/rows/pair_source.h"
#include "tf_ops/core/lookup/rows/row_math.h"

namespace fused_embedding {

// Pairs [begin, end) of one embedding. Pairs up to `last` may be prefetched.
struct PairRange {
  int64_t begin, end, last;
};

// Whether adding pair by pair to gradients in memory is faster than grouping the pairs first. It is
// if one thread suffices and the gradients fit in its cache. Both ways add in the same order.
template <typename T>
bool IsSmallGrad(int64_t num_pairs, int64_t num_unique, int64_t dim, double max_norm) {
  constexpr int64_t kMaxGradBytes = 256 * 1024;  // a share of the L2 cache
  constexpr int64_t kMaxValues = 128 * 1024;     // of all pairs: some 50 microseconds
  // A 16-bit gradient must not be rounded at each addition; max_norm needs a whole gradient.
  if (!std::is_same_v<T, ComputeType<T>> || max_norm >= 0) return false;
  const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(T));
  return dim > 0 && num_unique <= kMaxGradBytes / row_bytes && num_pairs <= kMaxValues / dim;
}

// Adds values [offset, offset + width) of the pairs' gradients to `sums`. `pair_of(i)` is the
// ScaledRow<T> of pair i: the gradient of its row.
template <int64_t kWidth, typename C, typename PairOf>
FE_INLINE void AddPairs(const PairRange& range, const PairOf& pair_of, int64_t dim, int64_t offset,
                        C* sums) {
  constexpr int64_t kPrefetchDistance = 8;
  const int64_t width = std::min(dim - offset, kBlockWidth);
  for (int64_t i = range.begin; i < range.end; ++i) {
    if (i + kPrefetchDistance < range.last) {
      const auto* ahead = pair_of(i + kPrefetchDistance).row;
      if (ahead) PrefetchRow(ahead, dim * static_cast<int64_t>(sizeof(*ahead)));
    }
    const auto pair = pair_of(i);
    if (pair.row == nullptr) continue;
    AddScaled<kWidth>(pair.factor, pair.row + offset, width, sums);
  }
}

// The derivative of max_norm: for c = max_norm / |e|,  de = c (g - e (e g) / |e|^2).
template <typename T>
struct ClipGrad {
  const T* embedding = nullptr;  // null: the embedding is not clipped
  ComputeType<T> scale = 1;
  ComputeType<T> projection = 0;  // (e g) / |e|^2 for the gradient g of the clipped embedding e
};

// (e g) is a sum over pairs of (e grad): no second buffer for g. A negative max_norm is off.
template <typename T, typename PairOf>
FE_INLINE ClipGrad<T> MakeClipGrad(const T* embedding, int64_t dim, double max_norm,
                                   const PairRange& range, const PairOf& pair_of) {
  using C = ComputeType<T>;
  if (max_norm < 0) return {};
  const C norm = L2Norm(embedding, dim);
  // At a norm of 0 there is no direction to project on.
  if (!(norm >= static_cast<C>(max_norm)) || norm == 0) return {};
  C dot = 0;
  for (int64_t i = range.begin; i < range.end; ++i) {
    const ScaledRow<T> pair = pair_of(i);
    if (pair.row == nullptr) continue;
    dot += pair.factor * Dot<C>(embedding, pair.row, dim);
  }
  return {embedding, static_cast<C>(max_norm) / norm, dot / (norm * norm)};
}

// Writes the gradient of one embedding to `out` [dim].
template <typename T, typename PairOf>
FE_INLINE void StoreRowGrad(const ClipGrad<T>& clip, int64_t dim, const PairRange& range,
                            const PairOf& pair_of, T* out) {
  ForEachBlock(dim, [&](auto width_constant, int64_t offset, int64_t width) FE_INLINE_LAMBDA {
    constexpr int64_t kWidth = decltype(width_constant)::value;
    ComputeType<T> sums[kBlockWidth] = {};
    AddPairs<kWidth>(range, pair_of, dim, offset, sums);
    if (clip.embedding) {
      AddScaled<kWidth>(-clip.projection, clip.embedding + offset, width, sums);
    }
    StoreScaled<kWidth>(clip.scale, sums, width, out + offset);
  });
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_GRAD_H_
