// A sum of rows in registers. Not for headers that nvcc compiles: it has vectors of the CPU.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUM_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUM_H_

#include <cstdint>
#include <cstring>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/simd.h"

namespace fused_embedding {

// Terms that are added to each other before they are added to a sum of more.
constexpr int64_t kTermsAtOnce = 8;

// A sum of kNumValues values of rows, in vectors: they stay in registers while rows are added. An
// array is loaded and stored with each addition.
template <int64_t kValues, int64_t kVectorBytes, typename C>
class RowSum {
 public:
  static constexpr int64_t kNumValues = kValues;

  template <bool kIsScaled, typename T>
  FE_INLINE void Add(C scale, const T* row) {
#pragma GCC unroll 32
    for (int64_t v = 0; v < kNumVectors; ++v) {
      Vector term;
      LoadScaled<kIsScaled>(scale, row, v, &term);
      sum_[v] += term;
    }
  }
  FE_INLINE void Add(const RowSum& other) {
#pragma GCC unroll 32
    for (int64_t v = 0; v < kNumVectors; ++v) sum_[v] += other.sum_[v];
  }

  template <typename T>
  FE_INLINE void StoreScaled(C scale, T* out) const {
#pragma GCC unroll 32
    for (int64_t v = 0; v < kNumVectors; ++v) {
      const Vector scaled = scale * sum_[v];
      C values[kLanes];
      std::memcpy(values, &scaled, sizeof(scaled));
      for (int64_t lane = 0; lane < kLanes; ++lane) Store(values[lane], &out[v * kLanes + lane]);
    }
  }

  // A sum in parts: adds this part to those before it, of which the first has none.
  FE_INLINE void AddTo(bool is_first, double* parts) const {
    C values[kNumValues];
    std::memcpy(values, sum_, sizeof(values));
    for (int64_t d = 0; d < kNumValues; ++d) parts[d] = (is_first ? 0 : parts[d]) + values[d];
  }
  // Adds the parts before this one.
  FE_INLINE void AddParts(const double* parts) {
    C values[kNumValues];
    std::memcpy(values, sum_, sizeof(values));
    for (int64_t d = 0; d < kNumValues; ++d) values[d] = static_cast<C>(parts[d] + values[d]);
    std::memcpy(sum_, values, sizeof(values));
  }

 private:
  static constexpr int64_t kBytes = kNumValues * static_cast<int64_t>(sizeof(C));
  static constexpr int64_t kEvenBytes = kBytes & -kBytes;
  static constexpr int64_t kUsedBytes = kEvenBytes < kVectorBytes ? kEvenBytes : kVectorBytes;
  static constexpr int64_t kLanes = kUsedBytes / static_cast<int64_t>(sizeof(C));
  static constexpr int64_t kNumVectors = kNumValues / kLanes;
  typedef C Vector __attribute__((vector_size(kUsedBytes)));

  template <bool kIsScaled, typename T>
  static FE_INLINE void LoadScaled(C scale, const T* row, int64_t v, Vector* term) {
    C values[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) values[lane] = Load(row[v * kLanes + lane]);
    std::memcpy(term, values, sizeof(values));
    if constexpr (kIsScaled) *term *= scale;
  }

  Vector sum_[kNumVectors] = {};
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUM_H_
