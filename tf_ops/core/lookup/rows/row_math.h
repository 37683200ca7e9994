// Loops over the values of one embedding row, shared by stages 5 and 6. All FE_INLINE, for
// WithSimd.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_MATH_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_MATH_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/simd.h"

namespace fused_embedding {

// Values of a row that are accumulated in registers in one pass: four 512-bit registers of float.
constexpr int64_t kBlockWidth = 64;

// Calls body(std::integral_constant<int64_t, W>, first, width) for consecutive blocks of a row of
// `dim` values. W = width when that is known at compile time (the usual dims), else 0.
template <typename Body>
FE_INLINE void ForEachBlock(int64_t dim, const Body& body) {
  int64_t first = 0;
  for (; dim - first >= kBlockWidth; first += kBlockWidth) {
    body(std::integral_constant<int64_t, kBlockWidth>(), first, kBlockWidth);
  }
  switch (const int64_t width = dim - first; width) {
    case 0:
      return;
    case 8:
      return body(std::integral_constant<int64_t, 8>(), first, width);
    case 16:
      return body(std::integral_constant<int64_t, 16>(), first, width);
    case 32:
      return body(std::integral_constant<int64_t, 32>(), first, width);
    default:
      return body(std::integral_constant<int64_t, 0>(), first, width);
  }
}

template <int64_t kWidth, typename C, typename T>
FE_INLINE void AddScaled(C scale, const T* in, int64_t width, C* sums) {
  const int64_t n = kWidth > 0 ? kWidth : width;
  for (int64_t d = 0; d < n; ++d) sums[d] += scale * Load(in[d]);
}

// Sum of a[d] * b[d], in 16 partial sums: a fixed order of additions that vectorises.
template <typename C, typename A, typename B>
FE_INLINE C Dot(const A* a, const B* b, int64_t dim) {
  constexpr int64_t kLanes = 16;
  C partial[kLanes] = {};
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      partial[lane] += Load(a[d + lane]) * Load(b[d + lane]);
    }
  }
  for (int64_t lane = 0; d + lane < dim; ++lane)
    partial[lane] += Load(a[d + lane]) * Load(b[d + lane]);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
  }
  return partial[0];
}

template <typename T>
FE_INLINE ComputeType<T> L2Norm(const T* row, int64_t dim) {
  return std::sqrt(Dot<ComputeType<T>>(row, row, dim));
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_MATH_H_
