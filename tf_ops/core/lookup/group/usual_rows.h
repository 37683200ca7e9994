// Combines rows of up to 256 values, pair by pair: pairs are checked when they are added. A sum has
// a number of vectors that the compiler knows. The fewer instructions are between two rows of a
// table, the more rows the processor fetches at a time.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_ROWS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_ROWS_H_

#include <cstdint>
#include <type_traits>

#include "tf_ops/core/lookup/group/column_rows.h"
#include "tf_ops/core/lookup/rows/row_sums.h"
#include "tf_ops/core/lookup/rows/table_rows.h"

namespace fused_embedding {

// Rows of kDim values, and their sums.
template <int64_t kDim>
struct WholeRows {
  template <int64_t kVectorBytes, typename C>
  struct Sum : RowSum<kDim, kVectorBytes, C> {
    FE_INLINE explicit Sum(int64_t) {}
  };
  static constexpr bool AreOf(int64_t dim) { return dim == kDim; }
  static constexpr int64_t Dim(int64_t) { return kDim; }
};

// Rows of more than kMaxDim / 2 and at most kMaxDim values, and their sums.
template <int64_t kMaxDim>
struct HalvesOfRows {
  template <int64_t kVectorBytes, typename C>
  using Sum = SumOfHalves<kMaxDim, kVectorBytes, C>;
  static constexpr bool AreOf(int64_t dim) { return dim > kMaxDim / 2 && dim <= kMaxDim; }
  static constexpr int64_t Dim(int64_t dim) { return dim; }
};

template <typename... Kinds>
struct RowKinds {
  static constexpr bool HaveDim(int64_t dim) { return (Kinds::AreOf(dim) || ...); }
};

// Combines rows by the first of Kinds, a RowKinds, that has their dim. TableRows<kVectorBytes>
// reads the rows of the table: table_rows.h.
template <typename T, template <int64_t> typename TableRows, typename Kinds, bool kMayHaveWeights>
class RowsOfDims {
 public:
  using C = ComputeType<T>;

  RowsOfDims(const GroupColumn<T>& column, Span<const int64_t> ids, const ColumnRows<T>& rows)
      : column_(column), ids_(ids), rule_(column.rule()), rows_(rows) {}

  // Combines rows [*row, end), from pair *next on, and moves both. Returns false if pairs are out
  // of order, or if a row's id is not in the table.
  bool Combine(int64_t end, int64_t* row, int64_t* next) const {
    return CombineFirstOf(end, row, next, Kinds());
  }

 private:
  static constexpr int64_t kIsBad = -1;  // instead of a position

  template <typename Kind, typename... Others>
  bool CombineFirstOf(int64_t end, int64_t* row, int64_t* next, RowKinds<Kind, Others...>) const {
    if (Kind::AreOf(column_.dim)) return CombineKind<Kind>(end, row, next);
    if constexpr (sizeof...(Others) > 0) {
      return CombineFirstOf(end, row, next, RowKinds<Others...>());
    }
    return false;
  }

  // Each kind has functions of its own: where all are in one, the compiler keeps less in registers.
  template <typename Kind>
  bool CombineKind(int64_t end, int64_t* row, int64_t* next) const {
    bool is_good = false;
    if (column_.weights.empty()) {
      WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
        is_good = CombineRows<Kind, false, vector_bytes()>(end, row, next);
      });
    } else if constexpr (kMayHaveWeights) {
      WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
        is_good = CombineRows<Kind, true, vector_bytes()>(end, row, next);
      });
    }
    return is_good;
  }

  template <typename Kind, bool kHasWeights, int64_t kVectorBytes>
  FE_INLINE bool CombineRows(int64_t end, int64_t* row, int64_t* next) const {
    using Sum = typename Kind::template Sum<kVectorBytes, C>;
    const int64_t dim = Kind::Dim(column_.dim);
    const TableRows<kVectorBytes> table{ReadFrom<typename TableRows<kVectorBytes>::Stored>(), dim};
    double parts[Sum::kNumValues] = {};
    int64_t pair = *next;
    for (; *row < end; ++*row) {
      Sum sum(dim);
      RowTerms terms;
      const int64_t stop = AddUp<kHasWeights>(table, *row, pair, parts, &terms, &sum);
      if (stop == kIsBad || IsOfRowBefore(stop, *row)) return false;
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

  // Adds up the pairs of a row, from its first `pair` on, in the order of AddUpTerms; a dropped
  // pair has a place in this order. `sum` must be zero; `parts` is memory for Sum::kNumValues.
  // Returns the position after the pairs.
  template <bool kHasWeights, typename Table, typename Sum>
  FE_INLINE int64_t AddUp(const Table& table, int64_t row, int64_t pair, double* parts,
                          RowTerms* terms, Sum* sum) const {
    const Sum zero = *sum;
    for (bool is_first = true;; is_first = false) {
      pair = AddUpBlock<kHasWeights>(table, row, pair, terms, sum);
      if (pair == kIsBad) return kIsBad;
      const bool goes_on = IsOf(pair, row);
      if (is_first && !goes_on) return pair;
      sum->AddTo(is_first, parts);
      *sum = zero;
      if (goes_on) continue;
      sum->AddParts(parts);
      return pair;
    }
  }

  // Adds up at most kTermsInBlock pairs, in the order of row_sum.h's AddUpBlock. It reads the rows
  // of the next few pairs only. A read far ahead misses the cache, and takes longer than the sum of
  // a short row.
  template <bool kHasWeights, typename Table, typename Sum>
  FE_INLINE int64_t AddUpBlock(const Table& table, int64_t row, int64_t pair, RowTerms* terms,
                               Sum* sum) const {
    // Three sums of more than 128 values do not fit into the registers. Two are stored while pairs
    // are added to `rest`: the compiler would store `rest`.
    constexpr bool kIsLarge = Sum::kNumValues > 128;
    C stored[2][kIsLarge ? Sum::kNumValues : 1];
    const int64_t block_end = pair + kTermsInBlock;
    const bool has_eights = IsOf(pair + kTermsAtOnce + 1, row), are_stored = kIsLarge && has_eights;
    Sum eight = *sum, rest = *sum;
    if (has_eights) pair = AddUpEights<kHasWeights>(table, row, pair, terms, &eight, sum);
    if (are_stored) {
      eight.Store(stored[0]);
      sum->Store(stored[1]);
      asm volatile("" : : "r"(stored) : "memory");
    }
    for (; pair != kIsBad && pair != block_end && IsOf(pair, row); ++pair) {
      if (!Add<kHasWeights>(table, pair, terms, &rest)) return kIsBad;
    }
    if (are_stored) {
      asm volatile("" : : "r"(stored) : "memory");
      for (const C* of_sum : stored) rest.template Add<false>(C{1}, of_sum);
    } else if (has_eights) {
      rest.Add(eight);
      rest.Add(*sum);
    }
    *sum = rest;
    return pair;
  }

  // Adds up the whole eights of a block: the last one to `eight`, those before it to `sum`.
  template <bool kHasWeights, typename Table, typename Sum>
  FE_INLINE int64_t AddUpEights(const Table& table, int64_t row, int64_t pair, RowTerms* terms,
                                Sum* eight, Sum* sum) const {
    const int64_t block_end = pair + kTermsInBlock;
    const Sum zero = *sum;
    for (;;) {
      *eight = zero;
      int64_t differences = 0;  // bits of other rows: pairs out of order
      for (const int64_t stop = pair + kTermsAtOnce; pair < stop; ++pair) {
        differences |= column_.row_ids[pair] ^ row;
        if (!Add<kHasWeights>(table, pair, terms, eight)) return kIsBad;
      }
      if (differences != 0) return kIsBad;
      if (pair == block_end || !IsOf(pair + kTermsAtOnce - 1, row)) return pair;
      sum->Add(*eight);
    }
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
  // Halves take every dim from 4 on. Whole rows of the most usual dims are up to 12 % faster.
  using Kinds = RowKinds<WholeRows<4>, WholeRows<8>, WholeRows<16>, WholeRows<32>, WholeRows<64>,
                         WholeRows<128>, HalvesOfRows<8>, HalvesOfRows<16>, HalvesOfRows<32>,
                         HalvesOfRows<64>, HalvesOfRows<128>, HalvesOfRows<256>>;
  template <int64_t>
  using Rows = ValueRows<T>;
  using Combiner = RowsOfDims<T, Rows, Kinds, true>;

  static bool AreOf(const GroupColumn<T>& column) {
    return kAreCompiled && column.max_norm < 0 && !column.is_stored() && Kinds::HaveDim(column.dim);
  }
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_ROWS_H_
