#include "tf_ops/core/lookup/rows/row_sums.h"

#include <type_traits>

#include "tf_ops/core/lookup/rows/block_sums.h"
#include "tf_ops/core/lookup/rows/table_rows.h"

namespace fused_embedding {

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
