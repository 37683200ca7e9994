#ifndef FUSED_EMBEDDING_TESTS_CPP_SIMD_LEVELS_H_
#define FUSED_EMBEDDING_TESTS_CPP_SIMD_LEVELS_H_

#include "tf_ops/core/base/simd.h"

namespace fused_embedding {

// Runs `body` once for each instruction set that this CPU has, compiled for it. It may take the
// size of the widest vectors, as that of WithSimd.
template <typename Body>
void ForEachSimdLevel(const Body& body) {
  CallWithVectors<16>(body);
#if defined(__x86_64__)
  if (BestSimdLevel() >= SimdLevel::kAvx2) RunAvx2(body);
  if (BestSimdLevel() >= SimdLevel::kAvx512) RunAvx512(body);
#endif
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_SIMD_LEVELS_H_
