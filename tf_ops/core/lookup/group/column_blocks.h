// Reads the pairs of a column block by block, in the order of their rows, and checks them on the
// way: they are then in the CPU's cache for the sums.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_BLOCKS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tf_ops/core/lookup/group/column_rows.h"
#include "tf_ops/core/lookup/rows/row_sums.h"

namespace fused_embedding {

// Pairs that are expected to be in the order of their rows. Positions number this order.
struct SortedPairs {
  RowIds row_ids;
  int64_t num_rows;

  // The first position of a row, and of all later ones.
  FE_INLINE int64_t begin(int64_t row) const {
    if (row == 0) return 0;
    return row == num_rows ? row_ids.size : FirstPairOfRow(row_ids, row);
  }
  FE_INLINE int64_t pair(int64_t position) const { return position; }
  FE_INLINE int64_t row(int64_t position) const { return row_ids[position]; }
};

// Pairs in any order, grouped by their rows.
struct GroupedPairs {
  RowIds row_ids;
  int64_t num_rows;
  const PairGroups& by_row;

  FE_INLINE int64_t begin(int64_t row) const { return by_row.splits.span()[row]; }
  FE_INLINE int64_t pair(int64_t position) const { return by_row.pair(position); }
  FE_INLINE int64_t row(int64_t position) const { return row_ids[pair(position)]; }
};

template <typename T, typename Id, typename Pairs>
class ColumnBlocks {
 public:
  using C = ComputeType<T>;
  using Block = RowSumBlock<T>;
  static constexpr int64_t kMaxPairs = Block::kMaxPairs;

  // Of positions [begin, end).
  ColumnBlocks(const GroupColumn<T>& column, Span<const Id> ids, const Pairs& pairs, int64_t begin,
               int64_t end)
      : column_(column), ids_(ids), pairs_(pairs), rule_(column.rule()), next_(begin), end_(end) {
    block_.table = column.table;
    block_.stored = column.stored;
    block_.dim = column.dim;
  }

  // Row s of a block: `num_pairs` kept pairs, and the sum of their terms of the denominator.
  struct Row {
    int64_t row;
    int64_t end;  // the position after its pairs, in the block
    int64_t num_pairs;
    double terms;
  };

  bool is_done() const { return next_ >= end_; }
  Block& block() { return block_; }
  Row& row(int64_t s) { return rows_[s]; }

  // Reads the next block; there must be one. Returns false if a kept id is not in the table. Rows
  // are not checked. Only the first row of a block may have begun in the block before.
  bool Read() {
    FindRows();
    ReadIds();
    ReadWeights();
    if (!HasAllIds() && !Prune()) return false;
    AddTerms();
    if (column_.max_norm >= 0) Clip();
    next_ += num_read_;
    FetchNext();
    return true;
  }

 private:
  // A row that does not fit is left to the next block, unless it is the only one: it is then cut at
  // a multiple of kMaxPairs from its first pair, whatever the thread's first pair is.
  void FindRows() {
    if constexpr (std::is_same_v<Pairs, GroupedPairs>) {
      FindGroupedRows();
      return;
    }
    const Pairs pairs = pairs_;  // a copy: its fields stay in registers
    const int64_t begin = next_, limit = std::min(end_, next_ + kMaxPairs);
    Row* next = rows_;
    int64_t row = pairs.row(begin);
    // Without a branch: the lengths of rows are hard to predict.
    for (int64_t i = begin + 1; i < limit; ++i) {
      next->row = row;
      next->end = i - begin;
      const int64_t of_pair = pairs.row(i);
      next += of_pair != row;
      row = of_pair;
    }
    next->row = row;
    next->end = limit - begin;
    SetRows(next + 1 - rows_, limit < end_ && pairs.row(limit) == row);
  }

  // FindRows where the pairs of each row are known.
  void FindGroupedRows() {
    const int64_t begin = next_, limit = std::min(end_, next_ + kMaxPairs);
    int64_t num_rows = 0, end = begin;
    for (int64_t row = pairs_.row(begin); end < limit; ++row) {
      const int64_t row_end = pairs_.begin(row + 1);
      if (row_end == end) continue;
      end = std::min(limit, row_end);
      rows_[num_rows].row = row;
      rows_[num_rows++].end = end - begin;
    }
    SetRows(num_rows, pairs_.begin(rows_[num_rows - 1].row + 1) > limit);
  }

  void SetRows(int64_t num_rows, bool is_last_cut) {
    block_.begins_inside = block_.ends_inside;
    block_.ends_inside = is_last_cut && num_rows == 1;
    if (is_last_cut && num_rows > 1) --num_rows;
    block_.num_sums = num_rows;
    num_read_ = rows_[num_rows - 1].end;
    block_.num_pairs = num_read_;
  }

  // The next block is read after the sums of this one.
  void FetchNext() const {
    constexpr int64_t kPairsInLine = 64 / sizeof(Id);
    const int64_t limit = std::min(end_, next_ + kMaxPairs);
    for (int64_t i = next_; i < limit; i += kPairsInLine) {
      const int64_t pair = pairs_.pair(i);
      __builtin_prefetch(ids_.data + pair);
      __builtin_prefetch(column_.row_ids.data + pair * column_.row_ids.stride);
      __builtin_prefetch(column_.row_ids.data + (pair + kPairsInLine / 2) * column_.row_ids.stride);
    }
  }

  void ReadIds() {
    const int64_t num_ahead = std::min(end_ - next_ - num_read_, kRowsInFlight);
    block_.num_ahead = num_ahead;
    if constexpr (std::is_same_v<Id, int64_t> && std::is_same_v<Pairs, SortedPairs>) {
      block_.ids = ids_.data + next_;
    } else {
      const int64_t num_ids = num_read_ + num_ahead;
      for (int64_t i = 0; i < num_ids; ++i) read_ids_[i] = ids_[pairs_.pair(next_ + i)];
      block_.ids = read_ids_;
    }
  }

  void ReadWeights() {
    block_.factors = nullptr;
    if (column_.weights.empty()) return;
    if constexpr (std::is_same_v<Pairs, SortedPairs>) {
      block_.factors = column_.weights.data + next_;
    } else {
      for (int64_t i = 0; i < num_read_; ++i) {
        read_factors_[i] = column_.weights[pairs_.pair(next_ + i)];
      }
      block_.factors = read_factors_;
    }
  }

  // Whether each id is in the table, and no pair is dropped.
  bool HasAllIds() const {
    bool has_all = false;
    WithSimd([&]() FE_INLINE_LAMBDA {
      const int64_t* ids = block_.ids;
      int64_t any = 0, largest = 0;  // `any` is negative if one of them is
      for (int64_t i = 0; i < num_read_; ++i) {
        any |= ids[i];
        largest = std::max(largest, ids[i]);
      }
      has_all = any >= 0 && largest < column_.table_rows;
    });
    if (!rule_.weights) return has_all;
    for (int64_t i = 0; i < num_read_; ++i) has_all &= block_.factors[i] > 0;
    return has_all;
  }

  // Leaves out what the column drops. Returns false if an id that it keeps is not in the table.
  bool Prune() {
    int64_t num_kept = 0, i = 0;
    for (int64_t s = 0; s < block_.num_sums; ++s) {
      for (; i < rows_[s].end; ++i) {
        const int64_t id = block_.ids[i];
        const C weight = factor(i);
        if (!rule_.Keeps(id, weight)) continue;
        if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(column_.table_rows)) return false;
        read_ids_[num_kept] = id;
        read_factors_[num_kept++] = weight;
      }
      rows_[s].end = num_kept;
    }
    // The ids whose rows are fetched ahead follow the kept ones.
    for (int64_t k = 0; k < block_.num_ahead; ++k) read_ids_[num_kept + k] = block_.ids[i + k];
    block_.ids = read_ids_;
    if (block_.factors) block_.factors = read_factors_;
    block_.num_pairs = num_kept;
    return true;
  }

  void AddTerms() {
    int64_t i = 0;
    for (int64_t s = 0; s < block_.num_sums; ++s) {
      Row& row = rows_[s];
      row.num_pairs = row.end - i;
      row.terms = static_cast<double>(row.num_pairs);
      if (!block_.factors) {
        i = row.end;
        continue;
      }
      row.terms = 0;
      for (; i < row.end; ++i) row.terms += DenominatorTerm(column_.combiner, block_.factors[i]);
    }
  }

  void Clip() {
    const int64_t num_fetched = column_.is_stored() ? 0 : block_.num_pairs;
    for (int64_t i = 0; i < num_fetched; ++i) {
      PrefetchRow(column_.row_of_id(block_.ids[i]), column_.dim * static_cast<int64_t>(sizeof(T)));
    }
    WithSimd([&]() FE_INLINE_LAMBDA {
      for (int64_t i = 0; i < block_.num_pairs; ++i) {
        const C weight = factor(i);
        read_factors_[i] = weight * ClipScaleOf(column_, block_.ids[i]);
      }
    });
    block_.factors = read_factors_;
  }

  FE_INLINE C factor(int64_t i) const { return block_.factors ? block_.factors[i] : C{1}; }

  const GroupColumn<T>& column_;
  const Span<const Id> ids_;
  const Pairs pairs_;
  const PruneRule rule_;
  int64_t next_;
  const int64_t end_;
  int64_t num_read_ = 0;  // pairs of the block, those that are dropped among them
  Block block_;
  Row rows_[kMaxPairs];
  int64_t read_ids_[kMaxPairs + kRowsInFlight];
  C read_factors_[kMaxPairs];
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_BLOCKS_H_
