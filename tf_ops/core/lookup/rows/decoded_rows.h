// Rows of one of the formats of fewer bytes, decoded in registers. Not for headers that nvcc
// compiles.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_DECODED_ROWS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_DECODED_ROWS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tf_ops/core/lookup/rows/row_formats.h"
#include "tf_ops/core/lookup/rows/table_rows.h"

namespace fused_embedding {

template <int64_t kVectorBytes, int64_t kLanes>
FE_INLINE void LoadBytes(const uint8_t* bytes, Vector<int32_t, kLanes>* integers) {
#if defined(__x86_64__)
  if constexpr (kVectorBytes >= 32 && kLanes >= 4) {
    // The compiler converts the bytes one by one.
    using Bytes = typename VectorOf<uint8_t, kLanes>::InMemory;
    asm("vpmovzxbd %1, %0" : "=v"(*integers) : "m"(*reinterpret_cast<const Bytes*>(bytes)));
    return;
  }
#endif
  int32_t values[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) values[lane] = bytes[lane];
  std::memcpy(integers, values, sizeof(values));
}

// LoadQuants(rows, row, dim, d, &quants) loads the quants of a row from value d on, as float.
template <int64_t kVectorBytes, int64_t kLanes>
FE_INLINE void LoadQuants(Int8Rows, const uint8_t* row, int64_t, int64_t d,
                          Vector<float, kLanes>* quants) {
  Vector<int32_t, kLanes> integers;
  LoadBytes<kVectorBytes, kLanes>(row + d, &integers);
  *quants = __builtin_convertvector(integers, Vector<float, kLanes>);
}

template <int64_t kVectorBytes, int64_t kLanes>
FE_INLINE void LoadQuants(Int4Rows, const uint8_t* row, int64_t dim, int64_t d,
                          Vector<float, kLanes>* quants) {
  const int64_t half = Int4Rows::NumQuantBytes(dim);
  Vector<int32_t, kLanes> integers;
  if (d + kLanes <= half) {
    LoadBytes<kVectorBytes, kLanes>(row + d, &integers);
    integers &= 15;
  } else if (d >= half) {
    LoadBytes<kVectorBytes, kLanes>(row + d - half, &integers);
    integers >>= 4;
  } else if (kLanes >= 2 && half - d == kLanes / 2) {
    constexpr int64_t kHalfLanes = kLanes >= 2 ? kLanes / 2 : 1;
    Vector<int32_t, kHalfLanes> low_and_high[2];
    LoadBytes<kVectorBytes, kHalfLanes>(row + d, &low_and_high[0]);
    LoadBytes<kVectorBytes, kHalfLanes>(row, &low_and_high[1]);
    low_and_high[0] &= 15;
    low_and_high[1] >>= 4;
    std::memcpy(&integers, low_and_high, sizeof(integers));
  } else {
    int32_t values[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      values[lane] = static_cast<int32_t>(Int4Rows::Quant(row, dim, d + lane));
    }
    std::memcpy(&integers, values, sizeof(values));
  }
  *quants = __builtin_convertvector(integers, Vector<float, kLanes>);
}

template <int64_t kVectorBytes, int64_t kLanes>
FE_INLINE void LoadQuants(BFloat16Rows, const uint8_t* row, int64_t, int64_t d,
                          Vector<float, kLanes>* quants) {
  const uint8_t* values = row + BFloat16Rows::RowBytes(d);
  LoadVector<kVectorBytes, kLanes>(reinterpret_cast<const BFloat16*>(values), quants);
}

// Scale and bias of a row.
template <int64_t kVectorBytes, typename Rows>
FE_INLINE ScaleAndBias LoadNumbers(Rows, const uint8_t* row, int64_t dim) {
  if constexpr (std::is_same_v<Rows, Int4Rows>) {
    uint32_t both;
    std::memcpy(&both, row + Rows::NumQuantBytes(dim), sizeof(both));
    const uint64_t four = both;  // as many as the processor converts
    Half halves[4];
    std::memcpy(halves, &four, sizeof(halves));
    Vector<float, 4> numbers;
    LoadVector<kVectorBytes, 4>(halves, &numbers);
    return {numbers[0], numbers[1]};
  } else {
    return Rows::Numbers(row, dim);
  }
}

// Decodes rows of the format Rows.
template <typename Rows, int64_t kVectorBytes>
struct DecodedRows {
  using Stored = uint8_t;

  const uint8_t* table;
  int64_t dim;

  static constexpr int64_t RowBytes(int64_t dim) { return Rows::RowBytes(dim); }
  // A row may have its last bytes in one more line.
  FE_INLINE void Fetch(int64_t id) const {
    const int64_t row_bytes = RowBytes(dim);
    const uintptr_t row = AddressOfRow(table, id, row_bytes);
    PrefetchRow(reinterpret_cast<const void*>(row), row_bytes);
    __builtin_prefetch(reinterpret_cast<const void*>(row + static_cast<size_t>(row_bytes) - 1));
  }

  template <bool kIsScaled, typename Sum>
  FE_INLINE void Add(int64_t id, int64_t offset, float factor, Sum* sum) const {
    // Where the values of int4 are in their bytes is known when this is compiled, if all of the row
    // are added at once.
    if (std::is_same_v<Rows, Int4Rows> && dim == Sum::kNumValues) {
      AddOf<kIsScaled>(id, Sum::kNumValues, 0, factor, sum);
    } else {
      AddOf<kIsScaled>(id, dim, offset, factor, sum);
    }
  }

 private:
  template <bool kIsScaled, typename Sum>
  FE_INLINE void AddOf(int64_t id, int64_t row_dim, int64_t offset, float factor, Sum* sum) const {
    constexpr bool kHasNumbers = !std::is_same_v<Rows, BFloat16Rows>;
    const uint8_t* const row = table + id * RowBytes(row_dim);
    ScaleAndBias numbers = LoadNumbers<kVectorBytes>(Rows(), row, row_dim);
    if constexpr (kIsScaled) {
      numbers.scale *= factor;
      numbers.bias *= factor;
    }
    sum->AddTerms([&](int64_t first, auto* term) FE_INLINE_LAMBDA {
      constexpr int64_t kLanes = static_cast<int64_t>(sizeof(*term) / sizeof(float));
      LoadQuants<kVectorBytes, kLanes>(Rows(), row, row_dim, offset + first, term);
      if constexpr (kIsScaled || kHasNumbers) *term *= numbers.scale;
      if constexpr (kHasNumbers) *term += numbers.bias;
    });
  }
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_DECODED_ROWS_H_
