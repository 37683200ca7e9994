#include "tf_ops/core/lookup/group/group_lookup.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "tf_ops/core/lookup/group/column_blocks.h"
#include "tf_ops/core/lookup/group/usual_rows.h"
#include "tf_ops/core/lookup/group/usual_stored_rows.h"
#include "tf_ops/core/lookup/stages/gather.h"

namespace fused_embedding {
namespace {

template <int64_t kStride>
FE_INLINE bool HaveOwnRowsOf(RowIds row_ids, int64_t begin, int64_t end) {
  if constexpr (kStride > 0) row_ids.stride = kStride;  // known, so that the loop becomes vectors
  uint64_t differences = 0;
  for (int64_t i = begin; i < end; ++i) differences |= static_cast<uint64_t>(row_ids[i] ^ i);
  return differences == 0;
}

// Whether each pair i in [begin, end) is of row i.
bool HaveOwnRows(const RowIds& row_ids, int64_t begin, int64_t end) {
  bool have = false;
  WithSimd([&]() FE_INLINE_LAMBDA {
    have = row_ids.stride == 1   ? HaveOwnRowsOf<1>(row_ids, begin, end)
           : row_ids.stride == 2 ? HaveOwnRowsOf<2>(row_ids, begin, end)
                                 : HaveOwnRowsOf<0>(row_ids, begin, end);
  });
  return have;
}

// Combines rows of one column whose ids are of type Id.
template <typename T, typename Id, typename Pairs>
class ColumnCombiner {
 public:
  using C = ComputeType<T>;
  using Blocks = ColumnBlocks<T, Id, Pairs>;

  ColumnCombiner(const GroupColumn<T>& column, Span<const Id> ids, const Pairs& pairs,
                 const CombinedOut<T>& out, Buffer<double>* parts)
      : column_(column), ids_(ids), pairs_(pairs), out_(out), rows_(column, out), parts_(parts) {}

  // Combines rows [begin, end). Returns false if their pairs are not at the positions where sorted
  // pairs would be, if a row or an id does not exist, or if memory runs out. Results are then of no
  // use.
  bool Combine(int64_t begin, int64_t end) {
    row_ = begin;
    end_ = end;
    next_ = pairs_.begin(begin);
    const int64_t stop = pairs_.begin(end);
    if constexpr (kAreSorted) {
      CopyOneHot();
      if (AreUsual()) return CombineUsual(stop);
    }
    return AddUpBlocks(stop) && FillRows(end);
  }

 private:
  static constexpr bool kAreSorted = std::is_same_v<Pairs, SortedPairs>;

  // Copies rows as long as each has one id. One unweighted embedding a row is what comes out,
  // whatever the combiner.
  void CopyOneHot() {
    if (!column_.weights.empty() || column_.max_norm >= 0 || next_ != row_) return;
    if (column_.num_pairs() != column_.num_rows) return;
    constexpr int64_t kBlock = 1024;  // rows whose pairs stay in the L1 cache
    while (row_ < end_) {
      const int64_t block_end = std::min(end_, row_ + kBlock);
      if (!HaveOwnRows(column_.row_ids, row_, block_end)) return;
      row_ = next_ = CopyRowsUpTo(block_end);
      if (row_ < block_end) return;
    }
  }

  // Copies the rows of ids [row_, stop). Returns the position of the first id that is not in the
  // table, where it stops.
  int64_t CopyRowsUpTo(int64_t stop) const {
    if constexpr (std::is_same_v<T, float>) {
      if (column_.is_stored()) {
        const StoredTable table{column_.stored, column_.table_rows, column_.dim};
        return DecodeRows(table, ids_, row_, stop, end_, {out_.data, out_.stride});
      }
    }
    constexpr int64_t kValueBytes = static_cast<int64_t>(sizeof(T));
    const TableView table{reinterpret_cast<const char*>(column_.table), column_.table_rows,
                          column_.dim * kValueBytes};
    const RowsOut out{reinterpret_cast<char*>(out_.data), out_.stride * kValueBytes};
    return CopyRows(table, ids_, row_, stop, end_, out);
  }

  bool AreUsual() const {
    if constexpr (std::is_same_v<T, float>) {
      if (column_.is_stored()) return AreUsualStoredRows(column_);
    }
    return UsualRows<T>::AreOf(column_);
  }

  // RowsOfDims::Combine.
  bool CombineUsualRows([[maybe_unused]] Span<const int64_t> ids) {
    if constexpr (std::is_same_v<T, float>) {
      if (column_.is_stored()) {
        return CombineUsualStoredRows(column_, ids, rows_, end_, &row_, &next_);
      }
    }
    if constexpr (UsualRows<T>::kAreCompiled) {
      return typename UsualRows<T>::Combiner(column_, ids, rows_).Combine(end_, &row_, &next_);
    }
    return false;
  }

  // Up to the pair at `stop`.
  bool CombineUsual(int64_t stop) {
    Buffer<int64_t> wide_ids;  // code for ids of 32 bits would be as much again
    const Span<const int64_t> ids = WideIds(stop, &wide_ids);
    return CombineUsualRows(ids) && next_ == stop;
  }

  // The ids of [next_, stop) at their positions; none without memory.
  Span<const int64_t> WideIds(int64_t stop, Buffer<int64_t>* memory) const {
    if constexpr (std::is_same_v<Id, int64_t>) {
      return {ids_.data, stop};
    } else {
      if (!memory->Allocate(stop).ok()) return {};
      for (int64_t i = next_; i < stop; ++i) (*memory)[i] = ids_[i];
      return memory->span();
    }
  }

  bool AddUpBlocks(int64_t stop) {
    Blocks blocks(column_, ids_, pairs_, next_, stop);
    next_ = stop;
    while (!blocks.is_done()) {
      if (!blocks.Read() || !MakeSums(&blocks) || !AddUp(blocks.block())) return false;
      if (!StoreRowsWithoutSums(&blocks)) return false;
    }
    return true;
  }

  bool MakeSums(Blocks* blocks) {
    const auto& block = blocks->block();
    for (int64_t s = 0; s < block.num_sums; ++s) {
      auto& row = blocks->row(s);
      const int32_t num_pairs = static_cast<int32_t>(row.num_pairs);
      if (s == 0 && block.begins_inside) {
        row.num_pairs += num_pairs_before_;
        row.terms += terms_before_;
      } else {
        if (row.row < row_ || row.row >= end_ || !FillRows(row.row)) return false;
        row_ = row.row + 1;
      }
      const double denominator = Denominator(column_.combiner, row.terms);
      const bool has_weights = !column_.weights.empty();
      const auto divisor = DivisorOf(static_cast<C>(denominator), row.num_pairs, has_weights);
      sums_[s] = {rows_.row(row.row), divisor, num_pairs};
    }
    num_pairs_before_ = blocks->row(block.num_sums - 1).num_pairs;
    terms_before_ = blocks->row(block.num_sums - 1).terms;
    return true;
  }

  bool AddUp(RowSumBlock<T>& block) {
    if (block.ends_inside && parts_->size() < column_.dim && !parts_->Allocate(column_.dim).ok()) {
      return false;
    }
    block.sums = sums_;
    AddUpRows(block, parts_->data());
    return true;
  }

  // Rows whose pairs were all dropped, and those with a denominator of 0.
  bool StoreRowsWithoutSums(Blocks* blocks) const {
    const auto& block = blocks->block();
    const int64_t num_ended = block.num_sums - block.ends_inside;
    for (int64_t s = 0; s < num_ended; ++s) {
      const auto& row = blocks->row(s);
      if (row.num_pairs == 0) {
        if (!rows_.Fill(row.row)) return false;
      } else if (HasZeroDenominator(column_.combiner, row.terms)) {
        rows_.StoreZeros(row.row);
      }
    }
    return true;
  }

  // Fills rows without ids up to `end`.
  bool FillRows(int64_t end) {
    for (; row_ < end; ++row_) {
      if (!rows_.Fill(row_)) return false;
    }
    return true;
  }

  const GroupColumn<T>& column_;
  const Span<const Id> ids_;
  const Pairs pairs_;
  const CombinedOut<T>& out_;
  const ColumnRows<T> rows_;
  Buffer<double>* const parts_;
  int64_t row_ = 0;  // the next row, and one after the last
  int64_t end_ = 0;
  int64_t next_ = 0;              // position of the next pair
  int64_t num_pairs_before_ = 0;  // of the last row of the block before
  double terms_before_ = 0;
  typename RowSumBlock<T>::Sum sums_[RowSumBlock<T>::kMaxPairs];
};

// The rows [begin, end) are those whose last position, of their pairs and then of themselves, lies
// in [first, last). Hence ranges of positions that follow each other give rows that do.
template <typename Pairs>
int64_t RowAtPosition(const Pairs& pairs, int64_t position) {
  int64_t low = 0, high = pairs.num_rows;
  if (position == 0) return low;
  if (position == high + pairs.begin(high)) return high;
  while (low < high) {
    const int64_t row = low + (high - low) / 2;
    if (row + pairs.begin(row + 1) < position) {
      low = row + 1;
    } else {
      high = row;
    }
  }
  return low;
}

// Combines the rows at positions [first, last) of a column's work. Returns false as
// ColumnCombiner::Combine does.
template <typename T>
bool CombinePositions(const GroupColumn<T>& column, const typename GroupPlan<T>::Column& plan,
                      const CombinedOut<T>& out, int64_t first, int64_t last,
                      Buffer<double>* parts) {
  if (column.num_rows == 0) return false;  // no row for the pairs
  const auto combine = [&](const auto& pairs) {
    using Pairs = std::decay_t<decltype(pairs)>;
    const int64_t begin = RowAtPosition(pairs, first);
    const int64_t end = RowAtPosition(pairs, last);
    return begin == end || column.ids.Visit([&](auto ids) {
      using Id = std::decay_t<decltype(ids[0])>;
      return ColumnCombiner<T, Id, Pairs>(column, ids, pairs, out, parts).Combine(begin, end);
    });
  };
  if (plan.is_sorted) return combine(SortedPairs{column.row_ids, column.num_rows});
  return combine(GroupedPairs{column.row_ids, column.num_rows, plan.by_row});
}

// Rough cost of a position.
int64_t PositionNs(int64_t dim) { return 4 + dim / 8; }

// Returns false if CombinePositions does.
template <typename T>
bool CombineColumns(const CpuExec& exec, Span<const GroupColumn<T>> columns,
                    const GroupPlan<T>& plan, Span<const CombinedOut<T>> combined) {
  int64_t max_dim = 0;
  for (const GroupColumn<T>& column : columns) max_dim = std::max(max_dim, column.dim);
  std::atomic<bool> is_as_planned{true};
  exec.ParallelFor(plan.work.total(), PositionNs(max_dim), [&](int64_t begin, int64_t end) {
    Buffer<double> parts;
    plan.work.ForEach(begin, end, [&](int64_t c, int64_t first, int64_t last) {
      const auto& of_column = plan.columns[static_cast<size_t>(c)];
      if (CombinePositions(columns[c], of_column, combined[c], first, last, &parts)) return;
      is_as_planned = false;
    });
  });
  return is_as_planned;
}

Status NoMemoryForSums() {
  return ResourceExhausted("no memory for the sum of a row; use a smaller batch");
}

template <typename T>
Status AddWork(Span<const GroupColumn<T>> columns, GroupPlan<T>* plan) {
  for (const GroupColumn<T>& column : columns) {
    // Rows of no values need no work, however many there are.
    const int64_t num_rows = column.dim == 0 ? 0 : column.num_rows;
    const int64_t num_pairs = column.dim == 0 ? 0 : column.num_pairs();
    if (num_rows > std::numeric_limits<int64_t>::max() - num_pairs ||
        !plan->work.Add(num_rows + num_pairs)) {
      return ResourceExhausted("cannot make ", num_rows, " rows; use a smaller batch");
    }
  }
  return Status();
}

}  // namespace

template <typename T>
Status PlanGroupLookup(const CpuExec& exec, Span<const GroupColumn<T>> columns,
                       GroupPlan<T>* plan) {
  const auto has_no_values = [](const GroupColumn<T>& column) { return column.dim == 0; };
  if (std::any_of(columns.begin(), columns.end(), has_no_values)) {
    std::vector<PairOrder> orders;  // RunGroupLookup does not read the pairs of such a column
    FE_RETURN_IF_ERROR(CheckColumns(exec, columns, &orders));
  }
  FE_RETURN_IF_ERROR(CheckColumnSizes(columns));
  plan->columns.resize(static_cast<size_t>(columns.size));
  return AddWork(columns, plan);
}

template <typename T>
Status PlanGroupLookup(const std::vector<PairOrder>& orders, Span<const GroupColumn<T>> columns,
                       GroupPlan<T>* plan) {
  plan->columns.resize(orders.size());
  for (int64_t c = 0; c < columns.size; ++c) {
    auto& of_column = plan->columns[static_cast<size_t>(c)];
    of_column.is_sorted = orders[static_cast<size_t>(c)].is_sorted;
    if (of_column.is_sorted) continue;
    FE_RETURN_IF_ERROR(GroupByRow(columns[c].row_ids, columns[c].num_rows, &of_column.by_row));
  }
  return AddWork(columns, plan);
}

template <typename T>
Status RunGroupLookup(const CpuExec& exec, Span<const GroupColumn<T>> columns,
                      const GroupPlan<T>& plan, Span<const CombinedOut<T>> combined) {
  if (CombineColumns(exec, columns, plan, combined)) return Status();
  // A second time, for an error that names what is wrong or with the order that the pairs have.
  std::vector<PairOrder> orders;
  FE_RETURN_IF_ERROR(CheckColumns(exec, columns, &orders));
  GroupPlan<T> ordered;
  FE_RETURN_IF_ERROR(PlanGroupLookup(orders, columns, &ordered));
  return CombineColumns(exec, columns, ordered, combined) ? Status() : NoMemoryForSums();
}

template <typename T>
Status RunColumnLookup(const CpuExec& exec, const GroupColumn<T>& column,
                       const typename GroupPlan<T>::Column& plan, const CombinedOut<T>& combined) {
  if (column.dim == 0) return Status();
  std::atomic<bool> has_memory{true};
  const auto combine = [&](int64_t begin, int64_t end) {
    Buffer<double> parts;
    if (!CombinePositions(column, plan, combined, begin, end, &parts)) has_memory = false;
  };
  exec.ParallelFor(column.num_rows + column.num_pairs(), PositionNs(column.dim), combine);
  return has_memory ? Status() : NoMemoryForSums();
}

#define FE_INSTANTIATE(T)                                                                         \
  template Status PlanGroupLookup(const CpuExec&, Span<const GroupColumn<T>>, GroupPlan<T>*);     \
  template Status PlanGroupLookup(const std::vector<PairOrder>&, Span<const GroupColumn<T>>,      \
                                  GroupPlan<T>*);                                                 \
  template Status RunGroupLookup(const CpuExec&, Span<const GroupColumn<T>>, const GroupPlan<T>&, \
                                 Span<const CombinedOut<T>>);                                     \
  template Status RunColumnLookup(const CpuExec&, const GroupColumn<T>&,                          \
                                  const typename GroupPlan<T>::Column&, const CombinedOut<T>&);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
