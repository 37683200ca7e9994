#include "tf_ops/core/lookup/rows/row_sums.h"

#include <type_traits>

#include "tf_ops/core/lookup/rows/block_sums.h"

namespace fused_embedding {
namespace {

template <typename T>
struct ValueRows {
  const T* table;
  int64_t dim;

  FE_INLINE void Fetch(int64_t id) const {
    const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(T));
    PrefetchRow(reinterpret_cast<const void*>(AddressOfRow(table, id, row_bytes)), row_bytes);
  }
  template <bool kIsScaled, typename Sum>
  FE_INLINE void Add(int64_t id, int64_t offset, ComputeType<T> factor, Sum* sum) const {
    sum->template Add<kIsScaled>(factor, table + offset + id * dim);
  }
};

}  // namespace

template <typename T>
void AddUpRows(const RowSumBlock<T>& block, double* parts) {
  if constexpr (std::is_same_v<T, float>) {
    if (block.stored.data) return AddUpStoredRows(block, parts);
  }
  const ValueRows<T> rows{block.table, block.dim};
  WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
    if (block.factors) {
      BlockSums<T, ValueRows<T>, true, vector_bytes()>(block, rows, parts).AddUp();
    } else {
      BlockSums<T, ValueRows<T>, false, vector_bytes()>(block, rows, parts).AddUp();
    }
  });
}

#define FE_INSTANTIATE(T) template void AddUpRows(const RowSumBlock<T>&, double*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
