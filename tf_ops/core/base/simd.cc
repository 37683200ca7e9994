#include "tf_ops/core/base/simd.h"

namespace fused_embedding {
namespace {

SimdLevel DetectSimdLevel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return SimdLevel::kAvx512;
  }
  if (avx2) return SimdLevel::kAvx2;
#endif
  return SimdLevel::kBaseline;
}

}  // namespace

SimdLevel BestSimdLevel() {
  static const SimdLevel level = DetectSimdLevel();
  return level;
}

}  // namespace fused_embedding
