// Values of a type that is known at run time only.

#ifndef FUSED_EMBEDDING_CORE_TABLE_VALUE_BYTES_H_
#define FUSED_EMBEDDING_CORE_TABLE_VALUE_BYTES_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

// Sizes differ by table and are small: no call of memcpy for whole vectors.
FE_INLINE void CopyBytes(const char* from, int64_t bytes, char* to) {
  constexpr int64_t kVector = 16, kMaxInline = 512;
  if (bytes > kMaxInline) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  int64_t i = 0;
  for (; i + kVector <= bytes; i += kVector) std::memcpy(to + i, from + i, kVector);
  if (i < bytes) std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
}

void FillValues(ValueType type, double value, int64_t n, char* out);
double SquaredNorm(ValueType type, const char* values, int64_t n);
// The bytes of a new row that follow its value: the initial slots.
std::vector<char> BytesBehindValue(const RowLayout& layout);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_VALUE_BYTES_H_
