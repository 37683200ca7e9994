#include "tf_ops/core/lookup/group/group_column.cu.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/stages/gather.h"

namespace fused_embedding {
namespace {

// What a scan of pairs saw, as bits.
constexpr uint32_t kDecreasingRow = 1;
constexpr uint32_t kNotOneHot = 2;
constexpr uint32_t kPrunedPair = 4;

template <typename T>
__global__ void CheckColumnsKernel(const GpuColumn<T>* __restrict__ columns, int64_t num_columns,
                                   ColumnReport* reports) {
  const GpuColumn<T>& of_block = ItemOfBlock(columns, num_columns, &GpuColumn<T>::pair_blocks);
  const GroupColumn<T>& column = of_block.column;
  ColumnReport* report = reports + (&of_block - columns);
  uint32_t seen = 0;
  of_block.ForEachPair([&](int64_t i) {
    const int64_t row = column.row_ids[i];
    if (!IsIndex(row, column.num_rows)) report->first_bad_row.Add(i);
    if (i > 0 && column.row_ids[i - 1] > row) seen |= kDecreasingRow;
    if (row != i) seen |= kNotOneHot;
    if (!column.IsKept(i)) {
      seen |= kPrunedPair;
    } else if (!column.ids_are_keys && !IsIndex(column.ids[i], column.table_rows)) {
      report->first_bad_id.Add(i);
    }
  });
  // Most threads have nothing to add to what others said.
  if (seen & ~*const_cast<volatile uint32_t*>(&report->seen)) atomicOr(&report->seen, seen);
}

template <typename T>
__global__ void CountPairsKernel(const GpuColumn<T>* __restrict__ columns, int64_t num_columns,
                                 int32_t* counts) {
  const GpuColumn<T>& of_block = ItemOfBlock(columns, num_columns, &GpuColumn<T>::pair_blocks);
  of_block.ForEachPair([&](int64_t i) {
    if (!of_block.column.Exists(i)) return;
    atomicAdd(counts + of_block.first_row + of_block.column.row_ids[i], 1);
  });
}

template <typename T>
__global__ void RowKeysOfColumnsKernel(const GpuColumn<T>* __restrict__ columns,
                                       int64_t num_columns, uint32_t* __restrict__ keys) {
  const GpuColumn<T>& of_block = ItemOfBlock(columns, num_columns, &GpuColumn<T>::pair_blocks);
  of_block.ForEachPair([&](int64_t i) {
    const int64_t row = of_block.column.row_ids[i];
    const bool exists = IsIndex(row, of_block.column.num_rows);
    keys[of_block.first_pair + i] = static_cast<uint32_t>(of_block.first_row + (exists ? row : 0));
  });
}

__global__ void FindZeroKernel(const int32_t* __restrict__ counts, int64_t size,
                               FirstPosition* first) {
  for (int64_t i = ThreadOfGrid(); i < size; i += NumThreadsOfGrid()) {
    if (counts[i] == 0) first->Add(i);
  }
}

// A default id need not exist where no row is empty.
template <typename T>
Status CheckFilledId(const GpuExec& exec, const GroupColumn<T>& column) {
  if (column.ids_are_keys || !column.fill || column.filled_id() < column.table_rows ||
      column.num_rows == 0) {
    return Status();
  }
  GroupColumn<T> any_id = column;
  any_id.ids_are_keys = true;  // only whether there is one
  LaidOutColumns<T> laid_out;
  DeviceBuffer<GpuColumn<T>> columns;
  DeviceBuffer<int32_t> counts;
  DeviceBuffer<FirstPosition> device_first;
  FE_RETURN_IF_ERROR(LayOutColumns<T>({&any_id, 1}, &laid_out));
  FE_RETURN_IF_ERROR(Upload<GpuColumn<T>>(exec, AsSpan(laid_out.columns), &columns));
  FE_RETURN_IF_ERROR(counts.Allocate(exec, column.num_rows));
  FE_RETURN_IF_ERROR(AllocateFirst(exec, 1, &device_first));
  FE_RETURN_IF_ERROR(CountPairs(exec, laid_out, columns, counts.span()));
  FE_RETURN_IF_ERROR(Launch(exec, column.num_rows, FindZeroKernel, counts.data(), column.num_rows,
                            device_first.data()));
  FirstPosition first;
  FE_RETURN_IF_ERROR(ReadValue(exec, device_first.data(), &first));
  if (!first.is_found()) return Status();
  return NoSuchFilledId(column.filled_id(), first.position(), column.table_rows);
}

// The error that a report tells of, with the value that was found.
template <typename T>
Status CheckReport(const GpuExec& exec, const GroupColumn<T>& column, const ColumnReport& report) {
  if (report.first_bad_row.is_found()) {
    const int64_t position = report.first_bad_row.position();
    int64_t row = 0;
    FE_RETURN_IF_ERROR(
        ReadValue(exec, &column.row_ids.data[position * column.row_ids.stride], &row));
    return NoSuchRowId(column.row_ids.name, position, row, column.num_rows);
  }
  if (report.first_bad_id.is_found()) {
    const int64_t position = report.first_bad_id.position();
    int64_t id = 0;
    FE_RETURN_IF_ERROR(ReadId(exec, column.ids, position, &id));
    return NoSuchRow(id, position, column.table_rows);
  }
  return CheckFilledId(exec, column);
}

}  // namespace

std::vector<int64_t> ColumnsByTable(Span<const int64_t> table_of_column) {
  std::vector<int64_t> order(static_cast<size_t>(table_of_column.size));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return table_of_column[a] < table_of_column[b]; });
  return order;
}

template <typename T>
Status LayOutColumns(Span<const GroupColumn<T>> columns, LaidOutColumns<T>* laid_out) {
  constexpr int64_t kMaxRows = std::numeric_limits<uint32_t>::max();  // what keys of rows can hold
  for (const GroupColumn<T>& column : columns) {
    GpuColumn<T> added;
    added.column = column;
    added.first_pair = laid_out->num_pairs;
    added.first_row = laid_out->num_rows;
    added.pair_blocks = TakeBlocks(column.num_pairs(), kItemsPerBlock, &laid_out->num_pair_blocks);
    added.row_blocks = TakeBlocks(column.num_rows, kItemsPerBlock, &laid_out->num_row_blocks);
    laid_out->columns.push_back(added);
    laid_out->num_pairs += column.num_pairs();
    if (__builtin_add_overflow(laid_out->num_rows, column.num_rows, &laid_out->num_rows) ||
        laid_out->num_rows >= kMaxRows) {
      return ResourceExhausted("cannot make ", column.num_rows, " rows; use a smaller batch");
    }
  }
  return CheckNumPairs(laid_out->num_pairs);
}

template <typename T>
Status CountPairs(const GpuExec& exec, const LaidOutColumns<T>& laid_out,
                  const DeviceBuffer<GpuColumn<T>>& device_columns, Span<int32_t> counts) {
  FE_RETURN_IF_ERROR(Fill(exec, 0, counts));
  return LaunchBlocks(exec, laid_out.num_pair_blocks, CountPairsKernel<T>, device_columns.data(),
                      device_columns.size(), counts.data);
}

template <typename T>
Status GroupColumnsByRow(const GpuExec& exec, const LaidOutColumns<T>& laid_out,
                         const DeviceBuffer<GpuColumn<T>>& device_columns, bool are_sorted,
                         GpuPairGroups* groups) {
  DeviceBuffer<uint32_t> keys;
  FE_RETURN_IF_ERROR(keys.Allocate(exec, laid_out.num_pairs));
  FE_RETURN_IF_ERROR(LaunchBlocks(exec, laid_out.num_pair_blocks, RowKeysOfColumnsKernel<T>,
                                  device_columns.data(), device_columns.size(), keys.data()));
  return GroupByKey(exec, keys.span(), laid_out.num_rows, are_sorted, groups);
}

template <typename T>
Status StartCheck(const GpuExec& exec, Span<const GroupColumn<T>> columns, ColumnCheck* check,
                  Readback* readback) {
  FE_RETURN_IF_ERROR(CheckColumnSizes(columns));
  if (columns.empty()) return Status();
  // Not LayOutColumns: numbers of rows may be anything where a column has no values.
  std::vector<GpuColumn<T>> scanned(static_cast<size_t>(columns.size));
  int64_t num_blocks = 0;
  for (size_t c = 0; c < scanned.size(); ++c) {
    scanned[c].column = columns[static_cast<int64_t>(c)];
    scanned[c].pair_blocks = TakeBlocks(scanned[c].column.num_pairs(), kItemsPerBlock, &num_blocks);
  }
  check->reports.assign(scanned.size(), ColumnReport());
  DeviceBuffer<GpuColumn<T>> device_columns;
  FE_RETURN_IF_ERROR(Upload<GpuColumn<T>>(exec, AsSpan(scanned), &device_columns));
  FE_RETURN_IF_ERROR(Upload<ColumnReport>(exec, AsSpan(check->reports), &check->device_reports));
  readback->Add<ColumnReport>(check->device_reports.data(), AsSpan(check->reports));
  return LaunchBlocks(exec, num_blocks, CheckColumnsKernel<T>, device_columns.data(), columns.size,
                      check->device_reports.data());
}

template <typename T>
Status FinishCheck(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                   const ColumnCheck& check, std::vector<PairOrder>* orders) {
  orders->clear();
  for (int64_t c = 0; c < columns.size; ++c) {
    const ColumnReport& report = check.reports[static_cast<size_t>(c)];
    FE_RETURN_IF_ERROR(InColumn(c, CheckReport(exec, columns[c], report), columns[c].name));
    PairOrder order;
    order.is_sorted = !(report.seen & kDecreasingRow);
    order.is_one_hot = !(report.seen & kNotOneHot) && columns[c].num_pairs() == columns[c].num_rows;
    order.keeps_all = !(report.seen & kPrunedPair);
    orders->push_back(order);
  }
  return Status();
}

template <typename T>
Status CheckColumns(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                    std::vector<PairOrder>* orders) {
  ColumnCheck check;
  Readback readback;
  FE_RETURN_IF_ERROR(StartCheck(exec, columns, &check, &readback));
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  return FinishCheck(exec, columns, check, orders);
}

#define FE_INSTANTIATE(T)                                                                          \
  template Status LayOutColumns(Span<const GroupColumn<T>>, LaidOutColumns<T>*);                   \
  template Status CountPairs(const GpuExec&, const LaidOutColumns<T>&,                             \
                             const DeviceBuffer<GpuColumn<T>>&, Span<int32_t>);                    \
  template Status GroupColumnsByRow(const GpuExec&, const LaidOutColumns<T>&,                      \
                                    const DeviceBuffer<GpuColumn<T>>&, bool, GpuPairGroups*);      \
  template Status StartCheck(const GpuExec&, Span<const GroupColumn<T>>, ColumnCheck*, Readback*); \
  template Status FinishCheck(const GpuExec&, Span<const GroupColumn<T>>, const ColumnCheck&,      \
                              std::vector<PairOrder>*);                                            \
  template Status CheckColumns(const GpuExec&, Span<const GroupColumn<T>>, std::vector<PairOrder>*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
