// The (embedding, row) pairs of stages 5 and 6, and their groups.
//
// Pairs are grouped by row or by unique id. One thread processes a group, so there are no atomics,
// and additions are in input order for any number of threads.
//
//   keys [2, 0, 2], 3 groups  ->  splits [0, 1, 1, 3]   order [1, 0, 2]

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIRS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIRS_H_

#include <cstdint>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/rows/pair_source.h"

namespace fused_embedding {

// int32_t or int64_t ids, in the type of the input.
struct IdSpan {
  const void* data = nullptr;
  int64_t size = 0;
  bool is_int32 = false;

  IdSpan() = default;
  IdSpan(Span<const int32_t> ids) : data(ids.data), size(ids.size), is_int32(true) {}  // NOLINT
  IdSpan(Span<const int64_t> ids) : data(ids.data), size(ids.size) {}                  // NOLINT

  FE_INLINE int64_t operator[](int64_t i) const {
    return is_int32 ? static_cast<const int32_t*>(data)[i] : static_cast<const int64_t*>(data)[i];
  }
  // Calls body(Span<const Id>) with the ids in their type.
  template <typename Body>
  FE_INLINE auto Visit(const Body& body) const {
    if (is_int32) return body(Span<const int32_t>{static_cast<const int32_t*>(data), size});
    return body(Span<const int64_t>{static_cast<const int64_t*>(data), size});
  }
};

// Pairs whose embeddings were gathered: pair k has the embedding rows[unique_idx[k]].
template <typename T>
struct Pairs : PairSource<T> {
  Span<const T* const> rows;       // [num_unique] embedding of each unique id, `dim` values
  Span<const int32_t> unique_idx;  // [num_pairs], each in [0, num_unique)
  Span<const bool> is_zero_row;    // [num_rows] rows whose result is 0, or empty: none
  uint64_t address_bits = 1;       // on a GPU: bitwise or of where embeddings begin; 1: anywhere

  FE_INLINE bool IsKept(int64_t) const { return true; }
  FE_INLINE bool Exists(int64_t pair) const {
    const int64_t row = this->row_ids[pair], unique = unique_idx[pair];
    return row >= 0 && row < this->num_rows && unique >= 0 && unique < rows.size;
  }
  FE_INLINE const T* row(int64_t pair) const { return rows[unique_idx[pair]]; }
  FE_INLINE bool IsZeroRow(int64_t row) const { return !is_zero_row.empty() && is_zero_row[row]; }
};

// The gradient of combined rows: row i is `dim` values from data + i * stride.
template <typename T>
struct CombinedGrad {
  const T* data = nullptr;
  int64_t stride = 0;

  FE_INLINE const T* row(int64_t i) const { return data + i * stride; }
  // Bitwise or of the possible start addresses of rows.
  uint64_t address_bits() const {
    return reinterpret_cast<uintptr_t>(data) | static_cast<uint64_t>(stride) * sizeof(T);
  }
};

struct PairGroups {
  Buffer<int32_t> splits;    // [num_groups + 1]
  Buffer<int32_t> order;     // [num_pairs] pairs group by group; empty if the input has that order
  bool is_identity = false;  // order[i] = i

  FE_INLINE int64_t begin(int64_t group) const { return splits.span()[group]; }
  FE_INLINE int64_t end(int64_t group) const { return splits.span()[group + 1]; }
  FE_INLINE int64_t pair(int64_t i) const { return is_identity ? i : order.span()[i]; }
};

// Checks that lengths agree. CheckPairs also checks that unique_idx is below num_unique.
template <typename T>
Status CheckPairSizes(const Pairs<T>& pairs);
template <typename T>
Status CheckPairs(const Pairs<T>& pairs);

// The errors of a value outside its range.
Status NoSuchUnique(int64_t position, int64_t unique, int64_t num_unique);
Status NoSuchRowId(const char* name, int64_t position, int64_t row, int64_t num_rows);

// The errors of an entry of a permutation, and of a row that is smaller than `previous` (-1: there
// is none) where rows must not decrease.
Status BadPermutation(int64_t entry, int64_t shard, int64_t position, bool occurs_twice);
Status RowDecreases(const char* name, int64_t position, int64_t row, int64_t previous);

// One lookup has at most 2^31 - 1 pairs.
Status CheckNumPairs(int64_t num_pairs);

// InvalidArgument names the first row outside [0, num_rows).
Status CheckRowIds(const RowIds& row_ids, int64_t num_rows);

// `row_ids` must have passed CheckRowIds.
Status GroupByRow(const RowIds& row_ids, int64_t num_rows, PairGroups* groups);

// `unique_idx` must have passed CheckPairs. Many pairs are shared by the threads.
Status GroupByUnique(const CpuExec& exec, Span<const int32_t> unique_idx, int64_t num_unique,
                     PairGroups* groups);

// Reads the id at a position in device memory, for an error message. Waits for the stream.
Status ReadId(const GpuExec& exec, const IdSpan& ids, int64_t position, int64_t* id);

// PairGroups on a GPU.
struct GpuPairGroups {
  DeviceBuffer<int32_t> splits;  // [num_groups + 1]
  DeviceBuffer<int32_t> order;   // [num_pairs], or empty: order[i] = i
};

// Groups by keys in [0, num_groups]; pairs with the key num_groups are in no group.
Status GroupByKey(const GpuExec& exec, Span<const uint32_t> keys, int64_t num_groups,
                  bool are_sorted, GpuPairGroups* groups);

// Groups the pairs that exist. It always sorts them, because waiting for the answer whether they
// are sorted already takes longer. Sizes must have been checked. At most 2^32 - 2 rows.
template <typename T>
Status GroupByRow(const GpuExec& exec, const Pairs<T>& pairs, GpuPairGroups* groups);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIRS_H_
