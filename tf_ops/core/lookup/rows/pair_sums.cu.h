// The sums of stage 6 on a GPU, for one table or several: of each unique id, the scaled gradients
// of its pairs.
//
// The pairs of a table, sorted by unique id, are cut into tiles of a fixed size, and a group of
// lanes adds up a tile with several rows in flight, however few pairs an id has. What an id that
// reaches over tiles has in each of them is a partial sum; these are added in the order of the
// tiles. So there are no atomics, ids with many pairs are shared work, and bits do not change from
// run to run.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIR_SUMS_CU_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIR_SUMS_CU_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/rows/row_sum.cu.h"

namespace fused_embedding {

// A sink is what the sums of a table go to, in parts: `kWidth` of the `dim` values from `offset`
// on, each part once, by one of the lanes.
//
//   RowOf  the row of unique id number `number` of the table, for the others;
//   Fetch  before the sum is known: loads into a Part what the sum will meet;
//   Take   gets the sum.
//
// Where the sink says kTakesRows, all lanes call it at once, each with its part or with none:
// `offset` is then not below `dim`.
//
// This one writes them.
template <typename T>
struct StoreSums {
  static constexpr bool kTakesRows = false;
  template <int kWidth>
  struct Part {};

  T* out = nullptr;              // [num_unique, dim], or:
  T* const* out_rows = nullptr;  // [num_unique] where each sum goes, aligned or not

  __device__ int64_t RowOf(int64_t number) const { return number; }

  template <int kWidth>
  __device__ void Fetch(int64_t, int64_t, int64_t, Part<kWidth>*) const {}

  template <int kWidth>
  __device__ void Take(const Lanes&, int64_t number, int64_t dim, int64_t offset,
                       const ComputeType<T>* sums, Part<kWidth>*) const {
    T* row = (out_rows ? out_rows[number] : out + number * dim) + offset;
    const bool is_aligned = kWidth == 1 || reinterpret_cast<uintptr_t>(row) % 16 == 0;
    if (is_aligned) RowVector<T, kWidth>::StoreTo(1, sums, row);
#pragma unroll
    for (int i = 0; i < kWidth && !is_aligned; ++i) Store(sums[i], &row[i]);
  }
};

// The unique ids of a table, which follow each other among all.
template <typename T, typename Sink = StoreSums<T>>
struct SumTable {
  int64_t first_unique = 0, num_unique = 0;
  int64_t max_pairs = 0;  // at least as many as the table has
  int64_t dim = 0;
  bool is_full_width = false;  // gradients and embeddings, and `out`, can be moved by 16 bytes
  Sink sink;
};

// Pairs in device memory, sorted by unique id.
template <typename T>
struct SortedPairs {
  const ScaledRow<T>* pairs = nullptr;  // [num_pairs] in input order
  const uint32_t* unique = nullptr;     // [num_pairs] unique id of each, sorted
  const int32_t* order = nullptr;       // [num_pairs] which pair it is
  const int32_t* splits = nullptr;      // [num_unique + 1] where the pairs of each unique id begin
  // Where embeddings were clipped: each pair subtracts projections[pair] * embeddings[unique].
  const ComputeType<T>* projections = nullptr;  // [num_pairs], or null: none was
  const T* const* embeddings = nullptr;         // [num_unique]
};

// For other sinks: SumPairsInto of pair_sums_kernels.cu.h.
template <typename T>
Status SumPairs(const GpuExec& exec, const SortedPairs<T>& sorted,
                const std::vector<SumTable<T>>& tables);

// Makes of a pair's gradient that of an embedding that was clipped to max_norm, as ClipGrad on the
// CPU; the derivative is linear in it. Returns what the pair adds to the projection.
template <int kWidth, typename T>
__device__ inline ComputeType<T> ClipPair(const Lanes& lanes, const T* embedding, int64_t dim,
                                          double max_norm, ScaledRow<T>* pair) {
  using C = ComputeType<T>;
  if (pair->row == nullptr || max_norm < 0) return 0;
  const C square = Dot<kWidth>(lanes, embedding, embedding, dim);
  const C norm = std::sqrt(square);
  // At a norm of 0 there is no direction to project on.
  if (!(norm >= static_cast<C>(max_norm)) || norm == 0) return 0;
  pair->factor *= static_cast<C>(max_norm) / norm;
  return pair->factor * Dot<kWidth>(lanes, embedding, pair->row, dim) / (norm * norm);
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIR_SUMS_CU_H_
