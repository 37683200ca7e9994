#include "tf_ops/core/lookup/group/group_column.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/lookup/stages/gather.h"

namespace fused_embedding {
namespace {

// What a scan of pairs saw, as bits.
constexpr uint32_t kNegativeId = 1;
constexpr uint32_t kLargeId = 2;
constexpr uint32_t kBadRow = 4;
constexpr uint32_t kDecreasingRow = 8;
constexpr uint32_t kNotOneHot = 16;
constexpr uint32_t kPrunedWeight = 32;

template <typename Id>
FE_INLINE uint32_t ScanIds(Span<const Id> ids, int64_t begin, int64_t end, int64_t table_rows) {
  Id any = 0, largest = 0;  // `any` is negative if one of them is
  for (int64_t i = begin; i < end; ++i) {
    any |= ids[i];
    largest = std::max(largest, ids[i]);
  }
  return (any < 0) * kNegativeId | (int64_t{largest} >= table_rows) * kLargeId;
}

// kStride > 0: known when compiled, so that the loop becomes vectors; 0: row_ids.stride.
template <int64_t kStride>
FE_INLINE uint32_t ScanRowsOf(RowIds row_ids, int64_t begin, int64_t end, int64_t num_rows) {
  if constexpr (kStride > 0) row_ids.stride = kStride;
  uint64_t is_bad = 0, decreases = 0, is_elsewhere = 0;
  const auto scan = [&](int64_t i, int64_t previous) FE_INLINE_LAMBDA {
    const int64_t row = row_ids[i];
    // One comparison for both bounds: a negative row is a huge unsigned one.
    is_bad |= uint64_t{static_cast<uint64_t>(row) >= static_cast<uint64_t>(num_rows)};
    decreases |= uint64_t{row < previous};
    is_elsewhere |= static_cast<uint64_t>(row ^ i);
  };
  if (begin < end) scan(begin, begin == 0 ? 0 : row_ids[begin - 1]);
  for (int64_t i = begin + 1; i < end; ++i) scan(i, row_ids[i - 1]);
  return (is_bad != 0) * kBadRow | (decreases != 0) * kDecreasingRow |
         (is_elsewhere != 0) * kNotOneHot;
}

FE_INLINE uint32_t ScanRows(const RowIds& row_ids, int64_t begin, int64_t end, int64_t num_rows) {
  switch (row_ids.stride) {
    case 1:
      return ScanRowsOf<1>(row_ids, begin, end, num_rows);
    case 2:
      return ScanRowsOf<2>(row_ids, begin, end, num_rows);
    default:
      return ScanRowsOf<0>(row_ids, begin, end, num_rows);
  }
}

template <typename T>
FE_INLINE uint32_t ScanPairs(const GroupColumn<T>& column, int64_t begin, int64_t end) {
  uint32_t seen = column.ids.Visit(
      [&](auto ids) FE_INLINE_LAMBDA { return ScanIds(ids, begin, end, column.table_rows); });
  seen |= ScanRows(column.row_ids, begin, end, column.num_rows);
  if (!column.rule().weights) return seen;
  bool is_pruned = false;
  for (int64_t i = begin; i < end; ++i) is_pruned |= !(column.weights[i] > 0);
  return seen | is_pruned * kPrunedWeight;
}

template <typename T>
Status CheckSizes(const GroupColumn<T>& column) {
  if (column.row_ids.size != column.ids.size) {
    return InvalidArgument("there must be one row for each of the ", column.ids.size, " ids, got ",
                           column.row_ids.size);
  }
  if (!column.weights.empty() && column.weights.size != column.ids.size) {
    return InvalidArgument("there must be one weight for each of the ", column.ids.size,
                           " ids, got ", column.weights.size);
  }
  return Status();
}

template <typename T>
Status CheckIds(const GroupColumn<T>& column) {
  for (int64_t i = 0; i < column.num_pairs(); ++i) {
    const int64_t id = column.ids[i];
    if ((id >= 0 && id < column.table_rows) || !column.IsKept(i)) continue;
    return NoSuchRow(id, i, column.table_rows);
  }
  return Status();
}

// A default id need not exist where no row is empty.
template <typename T>
Status CheckFilledId(const GroupColumn<T>& column) {
  if (!column.fill || column.filled_id() < column.table_rows || column.num_rows == 0) {
    return Status();
  }
  Buffer<bool> is_row_empty;
  FE_RETURN_IF_ERROR(is_row_empty.Allocate(column.num_rows));
  FindEmptyRows(column, is_row_empty.span());
  const Span<bool> flags = is_row_empty.span();
  const int64_t row = std::find(flags.begin(), flags.end(), true) - flags.begin();
  if (row == column.num_rows) return Status();
  return NoSuchFilledId(column.filled_id(), row, column.table_rows);
}

template <typename T>
Status CheckSeen(const GroupColumn<T>& column, uint32_t seen) {
  // Also the limit of the number of pairs.
  if (seen & kBadRow) FE_RETURN_IF_ERROR(CheckRowIds(column.row_ids, column.num_rows));
  if (column.ids_are_keys) return Status();
  const bool has_bad_id = (seen & kLargeId) || ((seen & kNegativeId) && !column.prune);
  if (has_bad_id) FE_RETURN_IF_ERROR(CheckIds(column));
  return CheckFilledId(column);
}

}  // namespace

Status InColumn(int64_t column, const Status& status, const char* name) {
  if (status.ok()) return status;
  if (name != nullptr) return MakeStatus(status.code(), name, ": ", status.message());
  return MakeStatus(status.code(), "column ", column, ": ", status.message());
}

Status NoSuchFilledId(int64_t filled_id, int64_t row, int64_t table_rows) {
  return InvalidArgument("id ", filled_id, ", which fills row ", row,
                         " for want of ids, is outside [0, ", table_rows,
                         "), the rows of the table; pass another default_id");
}

template <typename T>
Status CheckColumnSizes(Span<const GroupColumn<T>> columns) {
  ColumnWork work;
  for (int64_t c = 0; c < columns.size; ++c) {
    FE_RETURN_IF_ERROR(InColumn(c, CheckSizes(columns[c]), columns[c].name));
    FE_RETURN_IF_ERROR(InColumn(c, CheckNumPairs(columns[c].num_pairs()), columns[c].name));
    if (!work.Add(columns[c].num_pairs()))
      return ResourceExhausted("too many ids; use a smaller batch");
  }
  return Status();
}

template <typename T>
Status CheckColumns(const CpuExec& exec, Span<const GroupColumn<T>> columns,
                    std::vector<PairOrder>* orders) {
  FE_RETURN_IF_ERROR(CheckColumnSizes(columns));
  ColumnWork work;
  for (const GroupColumn<T>& column : columns) (void)work.Add(column.num_pairs());  // was checked
  std::vector<std::atomic<uint32_t>> seen(static_cast<size_t>(columns.size));
  exec.ParallelFor(work.total(), 1, [&](int64_t begin, int64_t end) {
    work.ForEach(begin, end, [&](int64_t c, int64_t first, int64_t last) {
      uint32_t bits = 0;
      WithSimd([&]() FE_INLINE_LAMBDA { bits = ScanPairs(columns[c], first, last); });
      seen[static_cast<size_t>(c)].fetch_or(bits);
    });
  });
  orders->clear();
  for (int64_t c = 0; c < columns.size; ++c) {
    const uint32_t bits = seen[static_cast<size_t>(c)];
    FE_RETURN_IF_ERROR(InColumn(c, CheckSeen(columns[c], bits), columns[c].name));
    PairOrder order;
    order.is_sorted = !(bits & kDecreasingRow);
    order.is_one_hot = !(bits & kNotOneHot) && columns[c].num_pairs() == columns[c].num_rows;
    order.keeps_all = !(bits & kPrunedWeight) && !(columns[c].prune && (bits & kNegativeId));
    orders->push_back(order);
  }
  return Status();
}

template <typename T>
void FindEmptyRows(const GroupColumn<T>& column, const Range& rows, const Range& pairs,
                   Span<bool> is_row_empty) {
  std::fill(is_row_empty.begin() + rows.begin, is_row_empty.begin() + rows.end, true);
  for (int64_t i = pairs.begin; i < pairs.end; ++i) {
    if (column.IsKept(i)) is_row_empty[column.row_ids[i]] = false;
  }
}

#define FE_INSTANTIATE(T)                                                  \
  template Status CheckColumnSizes(Span<const GroupColumn<T>>);            \
  template Status CheckColumns(const CpuExec&, Span<const GroupColumn<T>>, \
                               std::vector<PairOrder>*);                   \
  template void FindEmptyRows(const GroupColumn<T>&, const Range&, const Range&, Span<bool>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
