// Combines rows of the usual dims, pair by pair: pairs are checked when they are added. These dims
// are known when this is compiled. The fewer instructions lie between the rows of a table, the more
// of them the processor fetches at a time.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_ROWS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_ROWS_H_

#include <cstdint>
#include <type_traits>
#include <utility>

#include "tf_ops/core/lookup/group/column_rows.h"
#include "tf_ops/core/lookup/rows/row_sums.h"
#include "tf_ops/core/lookup/rows/table_rows.h"

namespace fused_embedding {

template <int64_t... kDims>
FE_INLINE bool IsOneOf(int64_t dim, std::integer_sequence<int64_t, kDims...>) {
  return ((dim == kDims) || ...);
}

// TableRows<kVectorBytes> is what reads the table's rows, of the given dims: table_rows.h.
template <typename T, template <int64_t> typename TableRows, typename Dims, bool kMayHaveWeights>
class RowsOfDims {
 public:
  using C = ComputeType<T>;

  RowsOfDims(const GroupColumn<T>& column, Span<const int64_t> ids, const ColumnRows<T>& rows)
      : column_(column), ids_(ids), rule_(column.rule()), rows_(rows) {}

  // Combines rows [*row, end), from pair *next on, and moves both. Stops at a row of more than
  // kMaxPairs pairs. Returns false if pairs are out of order, or if a row's id is not in the table.
  bool Combine(int64_t end, int64_t* row, int64_t* next) const {
    bool is_good = false;
    WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
      if (column_.weights.empty()) {
        is_good = CombineAll<false, vector_bytes()>(end, row, next, Dims());
      } else if constexpr (kMayHaveWeights) {
        is_good = CombineAll<true, vector_bytes()>(end, row, next, Dims());
      }
    });
    return is_good;
  }

 private:
  // The most pairs of a row. AddUpRows adds longer rows, with a smaller error. TensorFlow's error
  // of long weighted rows is smaller than that of sums of eight, hence the lower limit.
  static constexpr int64_t kMaxPairs = 4096, kMaxWeightedPairs = 128;

  template <bool kHasWeights, int64_t kVectorBytes, int64_t... kDims>
  FE_INLINE bool CombineAll(int64_t end, int64_t* row, int64_t* next,
                            std::integer_sequence<int64_t, kDims...>) const {
    return (
        (column_.dim == kDims && CombineDim<kDims, kHasWeights, kVectorBytes>(end, row, next)) ||
        ...);
  }

  template <int64_t kDim, bool kHasWeights, int64_t kVectorBytes>
  FE_INLINE bool CombineDim(int64_t end, int64_t* row, int64_t* next) const {
    const TableRows<kVectorBytes> table{ReadFrom<typename TableRows<kVectorBytes>::Stored>(), kDim};
    int64_t pair = *next;
    for (; *row < end; ++*row) {
      constexpr int64_t kMax = kHasWeights ? kMaxWeightedPairs : kMaxPairs;
      const bool is_long = IsOf(pair + kTermsAtOnce + 1, *row);
      if (is_long && IsOf(pair + kMax, *row)) break;
      RowSum<kDim, kVectorBytes, C> sum;
      RowTerms terms;
      const int64_t stop = AddUp<kHasWeights>(table, *row, is_long, pair, &terms, &sum);
      if (stop < 0 || IsOfRowBefore(stop, *row)) return false;
      pair = stop;
      if (!kHasWeights) terms.sum = static_cast<double>(terms.count);
      if (terms.count == 0) {
        if (!rows_.Fill(*row)) return false;
      } else if (kHasWeights && HasZeroDenominator(column_.combiner, terms.sum)) {
        rows_.StoreZeros(*row);
      } else {
        const double denominator = Denominator(column_.combiner, terms.sum);
        sum.Divide(DivisorOf(static_cast<C>(denominator), terms.count, kHasWeights));
        sum.Store(rows_.row(*row));
      }
    }
    *next = pair;
    return true;
  }

  // Adds up the pairs of a row, `pair` being the first, in the order of AddUpRows. `is_long`: there
  // are more than kTermsAtOnce + 1. Returns the position after them, or -1.
  template <bool kHasWeights, typename Table, typename Sum>
  FE_INLINE int64_t AddUp(const Table& table, int64_t row, bool is_long, int64_t pair,
                          RowTerms* terms, Sum* sum) const {
    Sum eight, rest;
    while (is_long) {
      eight = Sum();
      int64_t differences = 0;  // bits of other rows: pairs out of order
      for (const int64_t stop = pair + kTermsAtOnce; pair < stop; ++pair) {
        differences |= column_.row_ids[pair] ^ row;
        if (!Add<kHasWeights>(table, pair, terms, &eight)) return -1;
      }
      if (differences != 0) return -1;
      if (!IsOf(pair + kTermsAtOnce - 1, row)) break;
      sum->Add(eight);
    }
    for (; IsOf(pair, row); ++pair) {
      if (!Add<kHasWeights>(table, pair, terms, &rest)) return -1;
    }
    if (!is_long) {
      *sum = rest;
      return pair;
    }
    rest.Add(eight);
    sum->Add(rest);
    return pair;
  }

  // Returns false if the pair is kept and its id is not in the table.
  template <bool kHasWeights, typename Table, typename Sum>
  FE_INLINE bool Add(const Table& table, int64_t pair, RowTerms* terms, Sum* sum) const {
    if (const int64_t ahead = pair + kRowsInFlight; ahead < ids_.size) {
      if (IsInTable(ids_[ahead])) table.Fetch(ids_[ahead]);
    }
    const int64_t id = ids_[pair];
    const C weight = kHasWeights ? column_.weights[pair] : C{1};
    if (!IsInTable(id) || (kHasWeights && rule_.weights && !(weight > 0))) {
      return !rule_.Keeps(id, weight);
    }
    ++terms->count;
    if (kHasWeights) terms->sum += DenominatorTerm(column_.combiner, weight);
    table.template Add<kHasWeights>(id, 0, weight, sum);
    return true;
  }

  template <typename Stored>
  FE_INLINE const Stored* ReadFrom() const {
    if constexpr (std::is_same_v<Stored, T>) {
      return column_.table;
    } else {
      return column_.stored.data;
    }
  }
  FE_INLINE bool IsOf(int64_t pair, int64_t row) const {
    return pair < ids_.size && column_.row_ids[pair] == row;
  }
  FE_INLINE bool IsOfRowBefore(int64_t pair, int64_t row) const {
    return pair < ids_.size && column_.row_ids[pair] < row;
  }
  FE_INLINE bool IsInTable(int64_t id) const {
    return static_cast<uint64_t>(id) < static_cast<uint64_t>(column_.table_rows);
  }

  const GroupColumn<T> column_;  // a copy: its fields stay in registers
  const Span<const int64_t> ids_;
  const PruneRule rule_;
  const ColumnRows<T>& rows_;
};

// Rows of values. Those of Half are bound by their conversion, and those of double are rare.
template <typename T>
struct UsualRows {
  static constexpr bool kAreCompiled = std::is_same_v<T, float> || std::is_same_v<T, BFloat16>;
  using Dims = std::integer_sequence<int64_t, 4, 8, 16, 24, 32, 48, 64, 96, 128>;
  template <int64_t>
  using Rows = ValueRows<T>;
  using Combiner = RowsOfDims<T, Rows, Dims, true>;

  static bool AreOf(const GroupColumn<T>& column) {
    return kAreCompiled && column.max_norm < 0 && !column.is_stored() &&
           IsOneOf(column.dim, Dims());
  }
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_ROWS_H_
