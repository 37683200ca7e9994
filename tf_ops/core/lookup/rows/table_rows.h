// The rows of a table as sums take them. Not for headers that nvcc compiles.
//
//   RowBytes(dim)                            of a row of `dim` values
//   Fetch(id)                                ahead of its use; the row may not exist
//   Add<kIsScaled>(id, offset, factor, sum)  adds the row's values from `offset` on to a RowSum
//
// ValueRows and DecodedRows have both.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_TABLE_ROWS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_TABLE_ROWS_H_

#include <cstdint>

#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/lookup/rows/row_sum.h"

namespace fused_embedding {

// The address of row `id` of a table, as a number, because the row may not exist.
FE_INLINE uintptr_t AddressOfRow(const void* table, int64_t id, int64_t row_bytes) {
  return reinterpret_cast<uintptr_t>(table) +
         static_cast<uint64_t>(id) * static_cast<uint64_t>(row_bytes);
}

template <typename T>
struct ValueRows {
  using Stored = T;

  const T* table;
  int64_t dim;

  static constexpr int64_t RowBytes(int64_t dim) { return dim * int64_t{sizeof(T)}; }
  FE_INLINE void Fetch(int64_t id) const {
    const int64_t row_bytes = RowBytes(dim);
    PrefetchRow(reinterpret_cast<const void*>(AddressOfRow(table, id, row_bytes)), row_bytes);
  }
  template <bool kIsScaled, typename Sum>
  FE_INLINE void Add(int64_t id, int64_t offset, ComputeType<T> factor, Sum* sum) const {
    const int64_t row_bytes = RowBytes(dim);  // as above: one register
    const auto* row = reinterpret_cast<const T*>(AddressOfRow(table, id, row_bytes));
    sum->template Add<kIsScaled>(factor, row + offset);
  }
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_TABLE_ROWS_H_
