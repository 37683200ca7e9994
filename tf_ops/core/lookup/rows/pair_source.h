// The (embedding, row) pairs of stages 5 and 6, independent of where the embeddings are stored.
//
// Two structs are such sources: Pairs, whose embeddings were gathered, and GroupColumn, which reads
// a table in place. Both have the fields below, and these methods:
//
//   IsKept(pair)     whether the pair was not dropped
//   Exists(pair)     for unchecked pairs: whether it is kept, and its embedding and row exist
//   row(pair)        its embedding, `dim` values
//   IsZeroRow(row)   whether the row's result is 0, whatever its pairs are
//
// Templates over a source accept both.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIR_SOURCE_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIR_SOURCE_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/rows/combiner.h"

namespace fused_embedding {

// Row of each pair: the first column of `indices` [num_pairs, stride].
struct RowIds {
  const int64_t* data = nullptr;
  int64_t size = 0;
  int64_t stride = 1;
  const char* name = "indices";  // for messages

  FE_HOST_DEVICE int64_t operator[](int64_t pair) const { return data[pair * stride]; }
};

// Pair k adds weight(k) * row(k) to row row_ids[k] of the result.
template <typename T>
struct PairSource {
  using Value = T;

  RowIds row_ids;                      // [num_pairs], each in [0, num_rows), any order
  Span<const ComputeType<T>> weights;  // [num_pairs], or empty: all 1
  int64_t num_rows = 0;
  int64_t dim = 0;
  Combiner combiner = Combiner::kMean;
  double max_norm = -1;  // longer embeddings are scaled down to this L2 norm; negative: off

  FE_HOST_DEVICE int64_t num_pairs() const { return row_ids.size; }
  FE_INLINE ComputeType<T> weight(int64_t pair) const {
    return weights.empty() ? ComputeType<T>{1} : weights[pair];
  }
};

// Adds factor * row[0 .. dim) to a sum. Does nothing if `row` is null.
template <typename T>
struct ScaledRow {
  const T* row = nullptr;
  ComputeType<T> factor = 0;
};

// The kept pairs of a row: their number, and the sum of their terms of the denominator.
struct RowTerms {
  int64_t count = 0;
  double sum = 0;
};

// Adds up pairs pair_at(begin) ... pair_at(end - 1), in this order, on a GPU.
template <typename Source, typename PairAt>
FE_INLINE RowTerms TermsOf(const Source& source, int64_t begin, int64_t end,
                           const PairAt& pair_at) {
  const bool are_added = !source.weights.empty() && source.combiner != Combiner::kSum;
  RowTerms terms;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t pair = pair_at(i);
    if (!source.IsKept(pair)) continue;
    ++terms.count;
    if (are_added) terms.sum += DenominatorTerm(source.combiner, source.weight(pair));
  }
  if (!are_added) terms.sum = static_cast<double>(terms.count);
  return terms;
}

// What the sum of a row's pairs is divided by, on a GPU. The denominator is not 0.
template <typename Source>
FE_INLINE Divisor<ComputeType<typename Source::Value>> DivisorOfRow(const Source& source,
                                                                    const RowTerms& terms) {
  using C = ComputeType<typename Source::Value>;
  const bool has_weights = !source.weights.empty();
  // The root of a count has the same bits in both types, and is fast in one.
  const C denominator = has_weights ? static_cast<C>(Denominator(source.combiner, terms.sum))
                                    : Denominator(source.combiner, static_cast<C>(terms.count));
  return DivisorOf(denominator, terms.count, has_weights);
}

// The factor of a row's sum(w e), given the sum of its pairs' terms; 0 for a zero row.
template <typename Source, typename Sum>
FE_INLINE Sum ScaleOfRow(const Source& source, int64_t row, Sum sum_of_terms) {
  return source.IsZeroRow(row) ? Sum{0} : RowScale(source.combiner, sum_of_terms);
}

// Computes the factors of `rows`, of which `pairs` has all pairs, in any order. Their row ids must
// have been checked. `scale` is [num_rows], and so are `sums`, which are overwritten.
template <typename Source>
void ScalesOfRows(const Source& source, const Range& rows, const Range& pairs, double* sums,
                  ComputeType<typename Source::Value>* scale) {
  using C = ComputeType<typename Source::Value>;
  std::fill(sums + rows.begin, sums + rows.end, 0);
  for (int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
    if (!source.IsKept(pair)) continue;
    sums[source.row_ids[pair]] += DenominatorTerm(source.combiner, source.weight(pair));
  }
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    scale[row] = static_cast<C>(ScaleOfRow(source, row, sums[row]));
  }
}

// Of all rows.
template <typename Source>
Status RowScales(const Source& source, Buffer<ComputeType<typename Source::Value>>* scale) {
  Buffer<double> sums;
  FE_RETURN_IF_ERROR(sums.Allocate(source.num_rows));
  FE_RETURN_IF_ERROR(scale->Allocate(source.num_rows));
  ScalesOfRows(source, {0, source.num_rows}, {0, source.num_pairs()}, sums.data(), scale->data());
  return Status();
}

// The gradient that a row passes back to its embeddings; null if the row's scale is 0, as with a
// denominator of 0, whatever the gradient is. The parameters are the parts of the pointer, because
// a pointer that is computed before the test compiles to a conditional move, which is up to 4 %
// slower.
template <typename T>
FE_INLINE const T* PassedBack(const T* grads, int64_t row, int64_t stride,
                              ComputeType<T> row_scale) {
  return row_scale == 0 ? nullptr : grads + row * stride;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_PAIR_SOURCE_H_
