// The formats of rows in fewer bytes than their values. Not for headers that nvcc compiles.
//
//   int8      dim quants of 8 bits, then scale and bias as float
//   int4      dim quants of 4 bits, then scale and bias as Half; byte i has the quants of values i
//             (low half) and i + bytes (high half)
//   bfloat16  dim values
//
// A value is quant * scale + bias. Scale and bias are in the row: an array of their own would be a
// second cache miss.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_FORMATS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_FORMATS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/lookup/rows/stored_rows.h"

namespace fused_embedding {

struct ScaleAndBias {
  float scale = 1;
  float bias = 0;
};

// The rows of each format: where they are, and what their numbers are.
struct Int8Rows {
  static constexpr int64_t NumQuantBytes(int64_t dim) { return dim; }
  static constexpr int64_t RowBytes(int64_t dim) { return dim + 2 * int64_t{sizeof(float)}; }
  FE_INLINE static ScaleAndBias Numbers(const uint8_t* row, int64_t dim) {
    ScaleAndBias numbers;
    std::memcpy(&numbers, row + NumQuantBytes(dim), sizeof(numbers));
    return numbers;
  }
  FE_INLINE static float Quant(const uint8_t* row, int64_t, int64_t d) { return row[d]; }
};

struct Int4Rows {
  static constexpr int64_t NumQuantBytes(int64_t dim) { return (dim + 1) / 2; }
  static constexpr int64_t RowBytes(int64_t dim) {
    return NumQuantBytes(dim) + 2 * int64_t{sizeof(Half)};
  }
  FE_INLINE static ScaleAndBias Numbers(const uint8_t* row, int64_t dim) {
    Half numbers[2];
    std::memcpy(numbers, row + NumQuantBytes(dim), sizeof(numbers));
    return {Load(numbers[0]), Load(numbers[1])};
  }
  FE_INLINE static float Quant(const uint8_t* row, int64_t dim, int64_t d) {
    const int64_t half = NumQuantBytes(dim);
    return static_cast<float>(d < half ? row[d] & 15 : row[d - half] >> 4);
  }
};

struct BFloat16Rows {
  static constexpr int64_t RowBytes(int64_t dim) { return dim * int64_t{sizeof(BFloat16)}; }
  FE_INLINE static ScaleAndBias Numbers(const uint8_t*, int64_t) { return {}; }
  FE_INLINE static float Quant(const uint8_t* row, int64_t, int64_t d) {
    BFloat16 value;
    std::memcpy(&value, row + RowBytes(d), sizeof(value));
    return Load(value);
  }
};

// Calls body(Rows()) for the rows of a format.
template <typename Body>
FE_INLINE auto WithRowsOf(RowFormat format, const Body& body) {
  switch (format) {
    case RowFormat::kInt8:
      return body(Int8Rows());
    case RowFormat::kInt4:
      return body(Int4Rows());
    default:
      return body(BFloat16Rows());
  }
}

inline int64_t RowBytes(RowFormat format, int64_t dim) {
  return WithRowsOf(format, [&](auto rows) { return rows.RowBytes(dim); });
}

// Calls body(d, value) for the values of a row.
template <typename Body>
void ForEachValue(const StoredRows& table, int64_t id, int64_t dim, const Body& body) {
  WithRowsOf(table.format, [&](auto rows) {
    const uint8_t* row = table.data + id * rows.RowBytes(dim);
    const ScaleAndBias numbers = rows.Numbers(row, dim);
    for (int64_t d = 0; d < dim; ++d) {
      body(d, rows.Quant(row, dim, d) * numbers.scale + numbers.bias);
    }
  });
}

inline void DecodeRow(const StoredRows& table, int64_t id, int64_t dim, float* out) {
  ForEachValue(table, id, dim, [&](int64_t d, float value) { out[d] = value; });
}

// L2 norm of a row.
inline float NormOfRow(const StoredRows& table, int64_t id, int64_t dim) {
  double squares = 0;
  ForEachValue(table, id, dim, [&](int64_t, float value) { squares += double{value} * value; });
  return static_cast<float>(std::sqrt(squares));
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_FORMATS_H_
