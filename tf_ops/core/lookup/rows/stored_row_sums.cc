#include <algorithm>
#include <type_traits>

#include "tf_ops/core/lookup/rows/block_sums.h"
#include "tf_ops/core/lookup/rows/decoded_rows.h"

namespace fused_embedding {
namespace {

// Code for rows without factors would be as much again.
struct Ones {
  Ones() { std::fill_n(factors, kTermsInBlock, 1.0F); }
  float factors[kTermsInBlock];
};

template <typename Rows>
void AddUpRowsOf(const RowSumBlock<float>& block, double* parts) {
  static const Ones ones;
  RowSumBlock<float> scaled = block;
  if (!scaled.factors) scaled.factors = ones.factors;
  WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
    using Decoded = DecodedRows<Rows, vector_bytes()>;
    const Decoded rows{block.stored.data, block.dim};
    BlockSums<float, Decoded, true, vector_bytes()>(scaled, rows, parts).AddUp();
  });
}

// The arguments of DecodeRows.
template <typename Id>
struct Decoding {
  const StoredTable& table;
  Span<const Id> ids;
  int64_t begin, end, last;
  const DecodedOut& out;
};

// DecodeRows of rows of `dim` values, a constant for the usual dims. A row is the sum of itself.
template <typename Rows, int64_t kVectorBytes, typename Id, typename Dim>
FE_INLINE int64_t DecodeRowsOf(const Decoding<Id>& of, Dim dim) {
  const DecodedRows<Rows, kVectorBytes> rows{of.table.rows.data, dim};
  for (int64_t i = of.begin; i < of.end; ++i) {
    if (i + kRowsInFlight < of.last) rows.Fetch(of.ids[i + kRowsInFlight]);
    const int64_t id = of.ids[i];
    if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(of.table.num_rows)) return i;
    float* const row = of.out.data + i * of.out.stride;
    ForEachRowSum<kVectorBytes, float>(dim, [&](auto num_values, int64_t offset) FE_INLINE_LAMBDA {
      RowSum<num_values(), kVectorBytes, float> sum;
      rows.template Add<false>(id, offset, 1, &sum);
      sum.Store(row + offset);
    });
  }
  return of.end;
}

}  // namespace

void AddUpStoredRows(const RowSumBlock<float>& block, double* parts) {
  WithRowsOf(block.stored.format,
             [&](auto rows) { AddUpRowsOf<std::decay_t<decltype(rows)>>(block, parts); });
}

template <typename Id>
int64_t DecodeRows(const StoredTable& table, Span<const Id> ids, int64_t begin, int64_t end,
                   int64_t last, const DecodedOut& out) {
  const Decoding<Id> of{table, ids, begin, end, last, out};
  int64_t stop = begin;
  WithRowsOf(table.rows.format, [&](auto format) {
    using Rows = std::decay_t<decltype(format)>;
    WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
      const auto decode = [&](auto dim) FE_INLINE_LAMBDA {
        stop = DecodeRowsOf<Rows, vector_bytes()>(of, dim);
      };
      switch (table.dim) {
        case 16:
          return decode(std::integral_constant<int64_t, 16>());
        case 32:
          return decode(std::integral_constant<int64_t, 32>());
        case 64:
          return decode(std::integral_constant<int64_t, 64>());
        default:
          return decode(table.dim);
      }
    });
  });
  return stop;
}

template int64_t DecodeRows(const StoredTable&, Span<const int32_t>, int64_t, int64_t, int64_t,
                            const DecodedOut&);
template int64_t DecodeRows(const StoredTable&, Span<const int64_t>, int64_t, int64_t, int64_t,
                            const DecodedOut&);

}  // namespace fused_embedding
