// Sums of scaled rows by groups of lanes: the inner loop of stages 5 and 6 on a GPU.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUM_CU_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUM_CU_H_

#include <cmath>
#include <cstdint>

#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {

// As kMinBlocks, for kernels that combine rows: doubles need more registers.
template <typename T>
constexpr int kMinCombineBlocks = sizeof(ComputeType<T>) == 8 ? 2 : kMinBlocks;

// Adds kWidth values, from `offset`, of each of row_of(range.begin) ... row_of(range.end - 1), in
// their order.
template <int kWidth, typename T, typename RowOf>
__device__ inline void AddRows(const Range& range, const RowOf& row_of, int64_t offset,
                               ComputeType<T>* sums) {
  // Loaded before the first is added: a load takes as long as some hundred instructions.
  constexpr int kRowsInFlight = 4;
  for (int64_t first = range.begin; first < range.end; first += kRowsInFlight) {
    ScaledRow<T> rows[kRowsInFlight];
    RowVector<T, kWidth> vectors[kRowsInFlight];
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      if (first + i < range.end) rows[i] = row_of(first + i);
    }
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      if (rows[i].row) vectors[i] = RowVector<T, kWidth>::LoadFrom(rows[i].row + offset);
    }
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      if (rows[i].row) vectors[i].AddTo(rows[i].factor, sums);
    }
  }
}

// out[0 .. dim) = scale * the sum of the rows.
template <int kWidth, typename T, typename RowOf>
__device__ inline void StoreRowSum(const Lanes& lanes, int64_t dim, const Range& range,
                                   const RowOf& row_of, ComputeType<T> scale, T* out) {
  for (int64_t offset = lanes.lane * kWidth; offset < dim; offset += lanes.size * kWidth) {
    ComputeType<T> sums[kWidth] = {};
    AddRows<kWidth, T>(range, row_of, offset, sums);
    RowVector<T, kWidth>::StoreTo(scale, sums, out + offset);
  }
}

// Sum of a[d] * b[d], on each of the lanes.
template <int kWidth, typename T>
__device__ inline ComputeType<T> Dot(const Lanes& lanes, const T* a, const T* b, int64_t dim) {
  ComputeType<T> sum = 0;
  for (int64_t offset = lanes.lane * kWidth; offset < dim; offset += lanes.size * kWidth) {
    ComputeType<T> values_a[kWidth] = {}, values_b[kWidth] = {};
    RowVector<T, kWidth>::LoadFrom(a + offset).AddTo(1, values_a);
    RowVector<T, kWidth>::LoadFrom(b + offset).AddTo(1, values_b);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += values_a[i] * values_b[i];
  }
  return lanes.Sum(sum);
}

// What max_norm multiplies an embedding by, on each of the lanes; a negative one is off.
template <int kWidth, typename T>
__device__ inline ComputeType<T> ClipScaleOf(const Lanes& lanes, const T* embedding, int64_t dim,
                                             double max_norm) {
  using C = ComputeType<T>;
  if (max_norm < 0) return 1;
  const C square = Dot<kWidth>(lanes, embedding, embedding, dim);
  return ClipScale(std::sqrt(square), static_cast<C>(max_norm));
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUM_CU_H_
