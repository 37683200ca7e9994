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

// Rows that are loaded before the first is added: a load takes as long as some hundred
// instructions.
constexpr int kRowsInFlight = 4;

// Adds kWidth values, from `offset`, of each of up to kRowsInFlight rows from row_of(begin) on.
template <int kWidth, typename T, typename RowOf>
__device__ inline void AddRows(int64_t begin, int32_t num_rows, const RowOf& row_of, int64_t offset,
                               ComputeType<T>* sums) {
  ScaledRow<T> rows[kRowsInFlight];
  RowVector<T, kWidth> vectors[kRowsInFlight];
#pragma unroll
  for (int i = 0; i < kRowsInFlight; ++i) {
    if (i < num_rows) rows[i] = row_of(begin + i);
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

// A thread's kWidth totals in double precision. In shared memory: registers are for loads in
// flight.
template <int kWidth>
class SharedTotals {
 public:
  __device__ SharedTotals() {
    __shared__ double totals[kWidth * kBlockSize];
    of_thread_ = totals + threadIdx.x;
  }
  __device__ void Clear() const {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) of_thread_[i * kBlockSize] = 0;
  }
  // Adds the sums, and clears them.
  template <typename C>
  __device__ void Take(C* sums) const {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      of_thread_[i * kBlockSize] += sums[i];
      sums[i] = 0;
    }
  }
  template <typename C>
  __device__ void CopyTo(C* sums) const {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = static_cast<C>(of_thread_[i * kBlockSize]);
  }

 private:
  double* of_thread_;
};

// Sums of kWidth values, from `offset`, of each of row_of(range.begin) ... row_of(range.end - 1).
// More than nine rows are added in sums of 8, these in double precision (row_sum.h).
template <int kWidth, typename T, typename RowOf>
__device__ inline void SumRows(const Range& range, const RowOf& row_of, int64_t offset,
                               ComputeType<T>* sums) {
  static_assert(kTermsAtOnce == 2 * kRowsInFlight);
  const auto num_rows = static_cast<int32_t>(range.end - range.begin);
  const bool is_long = num_rows > kTermsAtOnce + 1;
  const SharedTotals<kWidth> totals;
  if (is_long) totals.Clear();
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[i] = 0;
  for (int32_t first = 0; first < num_rows; first += kRowsInFlight) {
    AddRows<kWidth, T>(range.begin + first, num_rows - first, row_of, offset, sums);
    if (is_long && (first & kRowsInFlight) != 0) totals.Take(sums);
  }
  if (!is_long) return;
  totals.Take(sums);
  totals.CopyTo(sums);
}

// out[0 .. dim) = the sum of the rows / divisor.
template <int kWidth, typename T, typename RowOf>
__device__ inline void StoreRowSum(const Lanes& lanes, int64_t dim, const Range& range,
                                   const RowOf& row_of, const Divisor<ComputeType<T>>& divisor,
                                   T* out) {
  for (int64_t offset = lanes.lane * kWidth; offset < dim; offset += lanes.size * kWidth) {
    ComputeType<T> sums[kWidth];
    SumRows<kWidth, T>(range, row_of, offset, sums);
    if (!divisor.is_inverse) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sums[i] /= divisor.number;
    }
    RowVector<T, kWidth>::StoreTo(divisor.is_inverse ? divisor.number : 1, sums, out + offset);
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
