// The gradient of one embedding: the sum over the pairs that look it up, shared by the gradients of
// stage 5 and of grouped lookups. All FE_INLINE, for WithSimd.
//
// `pairs` has two methods: grad(i) is the ScaledRow<T> of pair i, the gradient of its row, and
// row_to_fetch(i) that row alone, or null.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_GRAD_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_GRAD_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tf_ops/core/lookup/rows/pair_source.h"
#include "tf_ops/core/lookup/rows/row_math.h"
#include "tf_ops/core/lookup/rows/row_sum.h"

namespace fused_embedding {

// Pairs [begin, end) of one embedding. Pairs up to `last` may be prefetched.
struct PairRange {
  int64_t begin, end, last;
};

// Whether adding pair by pair to gradients in memory is faster than grouping the pairs first. It is
// if one thread suffices and the gradients fit in its cache. The order of additions differs, so
// this must not depend on the number of threads.
template <typename T>
bool IsSmallGrad(int64_t num_pairs, int64_t num_unique, int64_t dim, double max_norm) {
  constexpr int64_t kMaxGradBytes = 256 * 1024;  // a share of the L2 cache
  constexpr int64_t kMaxValues = 128 * 1024;     // of all pairs: some 50 microseconds
  // A 16-bit gradient must not be rounded at each addition; max_norm needs a whole gradient.
  if (!std::is_same_v<T, ComputeType<T>> || max_norm >= 0) return false;
  const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(T));
  return dim > 0 && num_unique <= kMaxGradBytes / row_bytes && num_pairs <= kMaxValues / dim;
}

// The derivative of max_norm: for c = max_norm / |e|,  de = c (g - e (e g) / |e|^2).
template <typename T>
struct ClipGrad {
  const T* embedding = nullptr;  // null: the embedding is not clipped
  ComputeType<T> scale = 1;
  ComputeType<T> projection = 0;  // (e g) / |e|^2 for the gradient g of the clipped embedding e
};

// (e g) is a sum over pairs of (e grad): no second buffer for g. A negative max_norm is off.
template <typename T, typename GradPairs>
FE_INLINE ClipGrad<T> MakeClipGrad(const T* embedding, int64_t dim, double max_norm,
                                   const PairRange& range, const GradPairs& pairs) {
  using C = ComputeType<T>;
  if (max_norm < 0) return {};
  const C norm = L2Norm(embedding, dim);
  // At a norm of 0 there is no direction to project on.
  if (!(norm >= static_cast<C>(max_norm)) || norm == 0) return {};
  double dot = 0;
  for (int64_t i = range.begin; i < range.end; ++i) {
    const ScaledRow<T> pair = pairs.grad(i);
    if (pair.row == nullptr) continue;
    dot += pair.factor * Dot<C>(embedding, pair.row, dim);
  }
  return {embedding, static_cast<C>(max_norm) / norm, static_cast<C>(dot) / (norm * norm)};
}

// Adds up the pairs' gradients: values [offset, offset + Sum::kNumValues). Clips the sum.
template <typename T, typename GradPairs, typename Sum>
FE_INLINE void AddUpGrads(const ClipGrad<T>& clip, int64_t dim, const PairRange& range,
                          const GradPairs& pairs, int64_t offset, Sum* sum) {
  constexpr int64_t kPrefetchDistance = 8;
  const auto add = [&](int64_t i, Sum* to) FE_INLINE_LAMBDA {
    if (i + kPrefetchDistance < range.last) {
      const T* ahead = pairs.row_to_fetch(i + kPrefetchDistance);
      if (ahead) PrefetchRow(ahead, dim * static_cast<int64_t>(sizeof(T)));
    }
    const ScaledRow<T> pair = pairs.grad(i);
    if (pair.row) to->template Add<true>(pair.factor, pair.row + offset);
  };
  AddUpTerms(range.begin, range.end, add, sum);
  if (clip.embedding == nullptr) return;
  sum->template Add<true>(-clip.projection, clip.embedding + offset);
  sum->Scale(clip.scale);
}

// Writes the gradient of one embedding to `out` [dim].
template <int64_t kVectorBytes, typename T, typename GradPairs, typename Out>
FE_INLINE void StoreRowGrad(const ClipGrad<T>& clip, int64_t dim, const PairRange& range,
                            const GradPairs& pairs, Out* out) {
  using C = ComputeType<T>;
  ForEachRowSum<kVectorBytes, C>(dim, [&](auto num_values, int64_t offset) FE_INLINE_LAMBDA {
    RowSum<num_values(), kVectorBytes, C> sum;
    AddUpGrads(clip, dim, range, pairs, offset, &sum);
    sum.Store(out + offset);
  });
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_GRAD_H_
