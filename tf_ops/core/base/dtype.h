// THE list of value types. Arithmetic is done in ComputeType, and rounded once when a value is
// stored: float for float and the 16-bit types, double for double.

#ifndef FUSED_EMBEDDING_CORE_BASE_DTYPE_H_
#define FUSED_EMBEDDING_CORE_BASE_DTYPE_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tf_ops/core/base/inline.h"

namespace fused_embedding {

// IEEE binary16 and bfloat16 as stored. No arithmetic: load, compute in float, store.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// FE_FOR_EACH_VALUE_TYPE(M) expands M(type) for each value type of an embedding.
#define FE_FOR_EACH_VALUE_TYPE(M) \
  M(float) M(double) M(::fused_embedding::Half) M(::fused_embedding::BFloat16)

template <typename T>
using ComputeType = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename To, typename From>
FE_INLINE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

FE_INLINE float Load(float value) { return value; }
FE_INLINE double Load(double value) { return value; }
FE_INLINE float Load(BFloat16 value) { return BitCast<float>(uint32_t{value.bits} << 16); }
// Branch-free, so that loops over it vectorise, and without subnormal floats in between:
// TensorFlow's threads flush those to zero. A NaN becomes quiet and keeps its payload, as by F16C.
FE_INLINE float Load(Half value) {
#ifdef __CUDA_ARCH__
  float loaded;
  asm("cvt.f32.f16 %0, %1;" : "=f"(loaded) : "h"(value.bits));
  return loaded;
#else
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  const uint32_t shifted = magnitude << 13;
  const uint32_t normal = shifted + (112u << 23);  // exponent bias 15 -> 127
  const float renormalised = BitCast<float>(shifted + (113u << 23)) - BitCast<float>(113u << 23);
  uint32_t bits = magnitude < 0x400u ? BitCast<uint32_t>(renormalised) : normal;
  bits = magnitude >= 0x7c00u ? 0x7f800000u | shifted : bits;
  bits = magnitude > 0x7c00u ? 0x00400000u | bits : bits;
  return BitCast<float>(sign | bits);
#endif
}

FE_INLINE void Store(float value, float* out) { *out = value; }
FE_INLINE void Store(double value, double* out) { *out = value; }
// Round to nearest even; NaN stays NaN.
FE_INLINE void Store(float value, BFloat16* out) {
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  out->bits = static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded);
}
FE_INLINE void Store(float value, Half* out) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out->bits) : "f"(value));
#else
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal results: rebias the exponent, round the 13 dropped bits to nearest even.
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal results: adding 0.5 aligns the value so that the addition itself rounds.
  const uint32_t subnormal =
      BitCast<uint32_t>(BitCast<float>(magnitude) + 0.5f) - BitCast<uint32_t>(0.5f);
  uint32_t half = magnitude < (113u << 23) ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // rounds to 2^16 or more: infinity
  half = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : half;
  out->bits = static_cast<uint16_t>(sign | half);
#endif
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_DTYPE_H_
