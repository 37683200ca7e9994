#include <type_traits>

#include "tf_ops/core/lookup/rows/block_sums.h"

namespace fused_embedding {
namespace {

// Rows of one of the formats, decoded in registers.
template <typename Rows, int64_t kVectorBytes>
struct DecodedRows {
  const uint8_t* table;
  int64_t dim;

  FE_INLINE int64_t row_bytes() const { return Rows::RowBytes(dim); }
  FE_INLINE uintptr_t address(int64_t id) const { return AddressOfRow(table, id, row_bytes()); }

  template <bool kIsScaled, typename Sum>
  FE_INLINE void Add(int64_t id, int64_t offset, float factor, Sum* sum) const {
    const uint8_t* const row = table + id * row_bytes();
    ScaleAndBias numbers = Rows::Numbers(row, dim);
    if constexpr (kIsScaled) {
      numbers.scale *= factor;
      numbers.bias *= factor;
    }
    sum->AddTerms([&](int64_t first, auto* term) FE_INLINE_LAMBDA {
      LoadQuants(row, offset + first, term);
      if constexpr (kIsScaled || !std::is_same_v<Rows, BFloat16Rows>) *term *= numbers.scale;
      if constexpr (!std::is_same_v<Rows, BFloat16Rows>) *term += numbers.bias;
    });
  }

  // The quants from d on.
  template <typename Vector>
  FE_INLINE void LoadQuants(const uint8_t* row, int64_t d, Vector* quants) const {
    constexpr int64_t kLanes = static_cast<int64_t>(sizeof(Vector) / sizeof(float));
    if constexpr (std::is_same_v<Rows, BFloat16Rows>) {
      LoadVector<kVectorBytes, kLanes>(reinterpret_cast<const BFloat16*>(row + Rows::RowBytes(d)),
                                       quants);
    } else if constexpr (std::is_same_v<Rows, Int8Rows>) {
      LoadBytes(row + d, [](auto* bytes) FE_INLINE_LAMBDA { (void)bytes; }, quants);
    } else {
      const int64_t half = Rows::NumQuantBytes(dim);
      if (d + kLanes <= half) {
        LoadBytes(row + d, [](auto* bytes) FE_INLINE_LAMBDA { *bytes &= 15; }, quants);
      } else if (d >= half) {
        LoadBytes(row + d - half, [](auto* bytes) FE_INLINE_LAMBDA { *bytes >>= 4; }, quants);
      } else {
        float values[kLanes];
        for (int64_t lane = 0; lane < kLanes; ++lane)
          values[lane] = Rows::Quant(row, dim, d + lane);
        std::memcpy(quants, values, sizeof(values));
      }
    }
  }

  // Bytes, of which `take` makes quants, as float.
  template <typename Take, typename Vector>
  FE_INLINE void LoadBytes(const uint8_t* bytes, const Take& take, Vector* quants) const {
    constexpr int64_t kLanes = static_cast<int64_t>(sizeof(Vector) / sizeof(float));
    ::fused_embedding::Vector<uint8_t, kLanes> narrow;
    std::memcpy(&narrow, bytes, sizeof(narrow));
    take(&narrow);
    const auto wide = __builtin_convertvector(narrow, ::fused_embedding::Vector<int32_t, kLanes>);
    *quants = __builtin_convertvector(wide, Vector);
  }
};

template <typename Rows>
void AddUpRowsOf(const RowSumBlock<float>& block, double* parts) {
  WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
    using Decoded = DecodedRows<Rows, vector_bytes()>;
    const Decoded rows{block.stored.data, block.dim};
    if (block.factors) {
      BlockSums<float, Decoded, true, vector_bytes()>(block, rows, parts).AddUp();
    } else {
      BlockSums<float, Decoded, false, vector_bytes()>(block, rows, parts).AddUp();
    }
  });
}

}  // namespace

void AddUpStoredRows(const RowSumBlock<float>& block, double* parts) {
  WithRowsOf(block.stored.format,
             [&](auto rows) { AddUpRowsOf<std::decay_t<decltype(rows)>>(block, parts); });
}

}  // namespace fused_embedding
