// Vectors of the numbers that values are computed in, and rows that become such numbers. Not for
// headers that nvcc compiles.
//
// `kVectorBytes` is what WithSimd passes to its body. With AVX2 and AVX-512 the processor converts
// Half, with the same bits as Load and Store.

#ifndef FUSED_EMBEDDING_CORE_BASE_VECTORS_H_
#define FUSED_EMBEDDING_CORE_BASE_VECTORS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/simd.h"

namespace fused_embedding {

template <typename T, int64_t kLanes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kLanes * sizeof(T))));
  // In an array of T.
  typedef T InMemory
      __attribute__((vector_size(kLanes * sizeof(T)), aligned(sizeof(T)), may_alias));
};
template <typename T, int64_t kLanes>
using Vector = typename VectorOf<T, kLanes>::Type;

#if defined(__x86_64__)
template <typename T, int64_t kVectorBytes, int64_t kLanes>
constexpr bool kIsConvertedByProcessor =
    std::is_same_v<T, Half> && kVectorBytes >= 32 && kLanes >= 4;
#else
template <typename T, int64_t kVectorBytes, int64_t kLanes>
constexpr bool kIsConvertedByProcessor = false;
#endif

// Loads kLanes values. Vectors are passed by pointer: as values they have another ABI at each
// instruction set, of which the compiler warns.
template <int64_t kVectorBytes, int64_t kLanes, typename T>
FE_INLINE void LoadVector(const T* in, Vector<ComputeType<T>, kLanes>* vector) {
  if constexpr (kIsConvertedByProcessor<T, kVectorBytes, kLanes>) {
    // An intrinsic would need a function of its instruction set; FE_INLINE ones have none.
    using Bits = typename VectorOf<uint16_t, kLanes>::InMemory;
    asm("vcvtph2ps %1, %0" : "=v"(*vector) : "m"(*reinterpret_cast<const Bits*>(in)));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    Vector<uint16_t, kLanes> bits;
    std::memcpy(&bits, in, sizeof(bits));
    const auto wide = __builtin_convertvector(bits, Vector<uint32_t, kLanes>) << 16;
    std::memcpy(vector, &wide, sizeof(wide));
  } else {
    ComputeType<T> values[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) values[lane] = Load(in[lane]);
    std::memcpy(vector, values, sizeof(values));
  }
}

// Stores kLanes values, rounded to T.
template <int64_t kVectorBytes, int64_t kLanes, typename T>
FE_INLINE void StoreVector(const Vector<ComputeType<T>, kLanes>* vector, T* out) {
  if constexpr (kIsConvertedByProcessor<T, kVectorBytes, kLanes>) {
    using Bits = typename VectorOf<uint16_t, kLanes>::InMemory;
    asm("vcvtps2ph $0, %1, %0" : "=m"(*reinterpret_cast<Bits*>(out)) : "v"(*vector));  // 0: to even
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    // Store, of vectors.
    Vector<uint32_t, kLanes> bits;
    std::memcpy(&bits, vector, sizeof(bits));
    const auto rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const auto is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const auto wide = is_nan ? (bits >> 16) | 0x40u : rounded;
    const auto narrow = __builtin_convertvector(wide, Vector<uint16_t, kLanes>);
    std::memcpy(out, &narrow, sizeof(narrow));
  } else {
    ComputeType<T> values[kLanes];
    std::memcpy(values, vector, sizeof(values));
    for (int64_t lane = 0; lane < kLanes; ++lane) Store(values[lane], &out[lane]);
  }
}

// The same, of an array of kLanes numbers instead of a vector.
template <int64_t kVectorBytes, int64_t kLanes, typename T>
FE_INLINE void LoadValues(const T* in, ComputeType<T>* out) {
  Vector<ComputeType<T>, kLanes> vector;
  LoadVector<kVectorBytes, kLanes>(in, &vector);
  std::memcpy(out, &vector, sizeof(vector));
}
template <int64_t kVectorBytes, int64_t kLanes, typename T>
FE_INLINE void StoreValues(const ComputeType<T>* in, T* out) {
  Vector<ComputeType<T>, kLanes> vector;
  std::memcpy(&vector, in, sizeof(vector));
  StoreVector<kVectorBytes, kLanes>(&vector, out);
}

// Calls body(constant, first): `constant` values from `first` on are a vector. Covers `num_values`
// by the widest vectors, and what is left, which is less than two of kLanes, by halves.
template <int64_t kLanes, typename Body>
FE_INLINE void ForEachVector(int64_t first, int64_t num_values, const Body& body) {
  if constexpr (kLanes > 0) {
    for (; num_values - first >= kLanes; first += kLanes) {
      body(std::integral_constant<int64_t, kLanes>(), first);
    }
    if (first < num_values) ForEachVector<kLanes / 2>(first, num_values, body);
  }
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_VECTORS_H_
