// One source for every instruction set: plain loops, compiled once per level, chosen at run time.
//
//   WithSimd([&]() FE_INLINE_LAMBDA { AddRows(...); });
//
// compiles the body three times. It works because everything that the body calls is FE_INLINE: an
// always-inlined function takes on the instruction set of the function it lands in. A function
// that is not FE_INLINE stays plain x86-64 code, correct and slower. Call WithSimd outside loops.
//
// A body that holds vectors itself takes the size of the widest ones, a std::integral_constant:
//
//   WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA { AddRows<vector_bytes()>(...); });

#ifndef FUSED_EMBEDDING_CORE_BASE_SIMD_H_
#define FUSED_EMBEDDING_CORE_BASE_SIMD_H_

#include <cstdint>
#include <type_traits>

#include "tf_ops/core/base/inline.h"

namespace fused_embedding {

enum class SimdLevel { kBaseline, kAvx2, kAvx512 };

// The best level of this CPU, found once.
SimdLevel BestSimdLevel();

template <int64_t kVectorBytes, typename Body>
FE_INLINE void CallWithVectors(const Body& body) {
  using VectorBytes = std::integral_constant<int64_t, kVectorBytes>;
  if constexpr (std::is_invocable_v<Body, VectorBytes>) {
    body(VectorBytes());
  } else {
    body();
  }
}

#if defined(__x86_64__)
template <typename Body>
__attribute__((target("avx2,fma,f16c"), noinline)) void RunAvx2(const Body& body) {
  CallWithVectors<32>(body);
}
// 512-bit vectors are asked for: rows are whole cache lines, and the loops are bound by memory.
template <typename Body>
__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"),
               noinline)) void
RunAvx512(const Body& body) {
  CallWithVectors<64>(body);
}
#endif

#if defined(FE_NATIVE_SIMD)
// One level alone: that of the compiler's -march.
template <typename Body>
void WithSimd(const Body& body) {
#if defined(__AVX512F__)
  CallWithVectors<64>(body);
#elif defined(__AVX2__)
  CallWithVectors<32>(body);
#else
  CallWithVectors<16>(body);
#endif
}
#else
template <typename Body>
void WithSimd(const Body& body) {
#if defined(__x86_64__)
  switch (BestSimdLevel()) {
    case SimdLevel::kAvx512:
      return RunAvx512(body);
    case SimdLevel::kAvx2:
      return RunAvx2(body);
    case SimdLevel::kBaseline:
      break;
  }
#endif
  CallWithVectors<16>(body);
}
#endif

FE_INLINE void PrefetchRow(const void* row, int64_t row_bytes) {
  constexpr int64_t kCacheLine = 64;
  constexpr int64_t kMaxBytes = 512;  // the hardware prefetcher follows longer rows by itself
  const char* bytes = static_cast<const char*>(row);
  const int64_t end = row_bytes < kMaxBytes ? row_bytes : kMaxBytes;
  for (int64_t i = 0; i < end; i += kCacheLine) __builtin_prefetch(bytes + i);
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_SIMD_H_
