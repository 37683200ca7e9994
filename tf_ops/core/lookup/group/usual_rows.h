// Combines rows of up to 256 values, pair by pair: pairs are checked when they are added. A sum has
// a number of vectors that the compiler knows. The fewer instructions are between two rows of a
// table, the more rows the processor fetches at a time.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_ROWS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_ROWS_H_

#include <algorithm>
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
  static constexpr int64_t Dim(int64_t dim) {
    if (!AreOf(dim)) __builtin_unreachable();  // Fetch then needs fewer branches
    return dim;
  }
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

  // A row whose pairs are added up.
  struct Row {
    int64_t number;
    int64_t num_dropped = 0;     // pairs
    double denominator_sum = 0;  // of the kept pairs' terms, with weights
  };

  template <typename Kind, bool kHasWeights, int64_t kVectorBytes>
  FE_INLINE bool CombineRows(int64_t end, int64_t* row, int64_t* next) const {
    using Sum = typename Kind::template Sum<kVectorBytes, C>;
    const int64_t dim = Kind::Dim(column_.dim);
    const TableRows<kVectorBytes> table{ReadFrom<typename TableRows<kVectorBytes>::Stored>(), dim};
    double parts[Sum::kNumValues];
    int64_t pair = *next;
    for (int64_t r = *row; r < end; ++r) {
      Sum sum(dim);
      Row added{r};
      const int64_t stop = AddUp<kHasWeights>(table, pair, parts, &added, &sum);
      if (stop == kIsBad || IsOfRowBefore(stop, r)) return false;
      const int64_t num_kept = stop - pair - added.num_dropped;
      pair = stop;
      const double terms = kHasWeights ? added.denominator_sum : static_cast<double>(num_kept);
      if (num_kept == 0) {
        if (!rows_.Fill(r)) return false;
      } else if (kHasWeights && HasZeroDenominator(column_.combiner, terms)) {
        rows_.StoreZeros(r);
      } else {
        const double denominator = Denominator(column_.combiner, terms);
        sum.Divide(DivisorOf(static_cast<C>(denominator), num_kept, kHasWeights));
        sum.Store(rows_.row(r));
      }
    }
    *row = end;
    *next = pair;
    return true;
  }

  // Adds up the pairs of a row, from its first `pair` on, in the order of AddUpTerms; a dropped
  // pair has a place in this order. `sum` must be zero; `parts` is memory for Sum::kNumValues.
  // Returns the position after the pairs.
  template <bool kHasWeights, typename Table, typename Sum>
  FE_INLINE int64_t AddUp(const Table& table, int64_t pair, double* parts, Row* row,
                          Sum* sum) const {
    const Sum zero = *sum;
    for (bool is_first = true;; is_first = false) {
      pair = AddUpBlock<kHasWeights>(table, pair, row, sum);
      if (pair == kIsBad) return kIsBad;
      const bool goes_on = IsOf(pair, row->number);
      if (is_first && !goes_on) return pair;
      C part[Sum::kNumValues] = {};
      sum->Store(part);
      *sum = zero;
      if (goes_on) {
        AddToParts(part, Sum::kNumValues, is_first, parts);
        continue;
      }
      AddPartsTo(part, Sum::kNumValues, parts);
      sum->template Add<false>(C{1}, part);
      return pair;
    }
  }

  // Adds up at most kTermsInBlock pairs, in the order of row_sum.h's AddUpBlock. One loop, with few
  // instructions for a pair. It reads pairs by pointers, because indices took more registers than
  // there are.
  template <bool kHasWeights, typename Table, typename Sum>
  FE_INLINE int64_t AddUpBlock(const Table& table, int64_t pair, Row* row, Sum* sum) const {
    constexpr uintptr_t kEightBytes = kTermsAtOnce * sizeof(int64_t);
    constexpr uintptr_t kBlockBytes = kTermsInBlock * sizeof(int64_t);
    const int64_t* id = ids_.data + pair;
    const int64_t* const ids_end = ids_.data + ids_.size;
    uintptr_t row_id_bytes = static_cast<uintptr_t>(column_.row_ids.stride) * sizeof(int64_t);
    asm("" : "+r"(row_id_bytes));  // GCC makes a second loop for a stride that may be 1
    uintptr_t row_id = AddressOf(column_.row_ids.data + pair * column_.row_ids.stride);
    const uintptr_t block_end = AddressOf(id) + kBlockBytes;
    const Sum zero = *sum;
    Sum eight = zero, rest = zero;
    for (uintptr_t eight_end = AddressOf(id) + kEightBytes;; eight_end += kEightBytes) {
      const uintptr_t stop = std::min(eight_end, AddressOf(ids_end));
      for (; AddressOf(id) != stop && IdAt(row_id) == row->number; ++id, row_id += row_id_bytes) {
        FetchAhead<Sum>(table, id, ids_end, row_id);
        if (!Add<kHasWeights>(table, id, row, &rest)) return kIsBad;
      }
      if (AddressOf(id) != eight_end) break;
      sum->Add(eight);
      eight = rest;
      rest = zero;
      if (eight_end == block_end) break;
    }
    rest.Add(eight);
    rest.Add(*sum);
    *sum = rest;
    return id - ids_.data;
  }

  // How many pairs ahead a row is fetched: short rows are added faster, and long ones fill the
  // first cache. Distances are measured (decision 040).
  static constexpr int64_t NumAhead(int64_t row_bytes) {
    if (row_bytes <= 128) return 40;
    return row_bytes <= 512 ? kRowsInFlight : 12;
  }

  // Fetches the row of a later pair. Short rows follow each other so fast that the hardware alone
  // fetches ids and row ids too late: those of 128 pairs ahead are fetched, too. A row id is then
  // one of two indices.
  template <typename Sum, typename Table>
  FE_INLINE void FetchAhead(const Table& table, const int64_t* id, const int64_t* ids_end,
                            uintptr_t row_id) const {
    constexpr int64_t kNumAhead = NumAhead(Table::RowBytes(Sum::kNumValues));
    if (__builtin_expect(ids_end - id > kNumAhead, true)) table.Fetch(id[kNumAhead]);
    if constexpr (Sum::kNumValues <= 64) {
      PrefetchAddress(AddressOf(id) + 128 * sizeof(int64_t));
      PrefetchAddress(row_id + 256 * sizeof(int64_t));
    }
  }
  static FE_INLINE void PrefetchAddress(uintptr_t address) {
    __builtin_prefetch(reinterpret_cast<const void*>(address));
  }

  // Addresses are numbers here, because some of them are after the last id.
  static FE_INLINE uintptr_t AddressOf(const int64_t* id) {
    return reinterpret_cast<uintptr_t>(id);
  }
  static FE_INLINE int64_t IdAt(uintptr_t address) {
    return *reinterpret_cast<const int64_t*>(address);
  }

  // Adds the pair whose id is at `id_at`. Returns false if it is kept and its id is not in the
  // table.
  template <bool kHasWeights, typename Table, typename Sum>
  FE_INLINE bool Add(const Table& table, const int64_t* id_at, Row* row, Sum* sum) const {
    const int64_t id = *id_at;
    const C weight = kHasWeights ? column_.weights[id_at - ids_.data] : C{1};
    if (!IsInTable(id) || (kHasWeights && rule_.weights && !(weight > 0))) {
      ++row->num_dropped;
      return !rule_.Keeps(id, weight);
    }
    if (kHasWeights) row->denominator_sum += DenominatorTerm(column_.combiner, weight);
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
