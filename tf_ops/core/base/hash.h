#ifndef FUSED_EMBEDDING_CORE_BASE_HASH_H_
#define FUSED_EMBEDDING_CORE_BASE_HASH_H_

#include <cstdint>

#include "tf_ops/core/base/inline.h"

namespace fused_embedding {

// A bijection of 64-bit values whose output bits all depend on all input bits.
// Source: the finaliser of MurmurHash3 (Appleby, public domain), fmix64.
FE_INLINE uint64_t Mix64(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_HASH_H_
