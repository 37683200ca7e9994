#ifndef FUSED_EMBEDDING_CORE_BASE_CRC32C_H_
#define FUSED_EMBEDDING_CORE_BASE_CRC32C_H_

#include <cstdint>

#include "tf_ops/core/base/span.h"

namespace fused_embedding {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of `bytes` that follow those that gave `crc`.
//   Crc32c("123456789") = 0xe3069283
uint32_t Crc32c(Span<const char> bytes, uint32_t crc = 0);

// The same without special instructions, for tests.
uint32_t PortableCrc32c(Span<const char> bytes, uint32_t crc = 0);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_CRC32C_H_
