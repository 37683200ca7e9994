#include "tf_ops/core/lookup/pairs.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {
namespace {

using Position = unsigned long long;
constexpr Position kNone = std::numeric_limits<Position>::max();

struct PairReport {
  Position first_bad_unique = kNone;
  Position first_bad_row = kNone;
  Position address_bits = 0;
  uint32_t is_unsorted = 0;
};

template <typename T>
__global__ void CheckPairsKernel(Pairs<T> pairs, PairReport* report) {
  for (int64_t i = ThreadOfGrid(); i < pairs.num_pairs(); i += NumThreadsOfGrid()) {
    const int64_t row = pairs.row_ids[i];
    if (!IsIndex(pairs.unique_idx[i], pairs.rows.size)) {
      atomicMin(&report->first_bad_unique, static_cast<Position>(i));
    }
    if (!IsIndex(row, pairs.num_rows)) {
      atomicMin(&report->first_bad_row, static_cast<Position>(i));
    }
    if (i > 0 && pairs.row_ids[i - 1] > row) atomicOr(&report->is_unsorted, 1u);
  }
  for (int64_t u = ThreadOfGrid(); u < pairs.rows.size; u += NumThreadsOfGrid()) {
    const Position bits = reinterpret_cast<uintptr_t>(pairs.rows[u]) % 16;
    if (bits != 0) atomicOr(&report->address_bits, bits);
  }
}

__global__ void RowKeysKernel(RowIds row_ids, uint32_t* __restrict__ keys) {
  for (int64_t i = ThreadOfGrid(); i < row_ids.size; i += NumThreadsOfGrid()) {
    keys[i] = static_cast<uint32_t>(row_ids[i]);
  }
}

// Copies one value, after an error was found.
template <typename Value>
Status ReadBack(const GpuExec& exec, const Value* device, Value* value) {
  FE_RETURN_IF_ERROR(CopyToHost<Value>(exec, device, {value, 1}));
  return WaitForStream(exec);
}

}  // namespace

template <typename T>
Status CheckPairs(const GpuExec& exec, const Pairs<T>& pairs, GpuPairFacts* facts) {
  FE_RETURN_IF_ERROR(CheckPairSizes(pairs));
  PairReport report;
  DeviceBuffer<PairReport> device_report;
  FE_RETURN_IF_ERROR(Upload<PairReport>(exec, {&report, 1}, &device_report));
  FE_RETURN_IF_ERROR(Launch(exec, std::max(pairs.num_pairs(), pairs.rows.size), CheckPairsKernel<T>,
                            pairs, device_report.data()));
  FE_RETURN_IF_ERROR(CopyToHost<PairReport>(exec, device_report.data(), {&report, 1}));
  FE_RETURN_IF_ERROR(WaitForStream(exec));
  if (report.first_bad_unique != kNone) {
    int32_t unique = 0;
    FE_RETURN_IF_ERROR(ReadBack(exec, pairs.unique_idx.data + report.first_bad_unique, &unique));
    return NoSuchUnique(static_cast<int64_t>(report.first_bad_unique), unique, pairs.rows.size);
  }
  if (report.first_bad_row != kNone) {
    const int64_t position = static_cast<int64_t>(report.first_bad_row);
    int64_t row = 0;
    FE_RETURN_IF_ERROR(ReadBack(exec, pairs.row_ids.data + position * pairs.row_ids.stride, &row));
    return NoSuchRowId(pairs.row_ids.name, position, row, pairs.num_rows);
  }
  facts->are_rows_sorted = report.is_unsorted == 0;
  facts->address_bits = report.address_bits;
  return Status();
}

Status GroupByKey(const GpuExec& exec, Span<const uint32_t> keys, int64_t num_groups,
                  bool are_sorted, GpuPairGroups* groups) {
  FE_RETURN_IF_ERROR(groups->splits.Allocate(exec, num_groups + 1));
  if (are_sorted) return SplitByKey(exec, keys, groups->splits.span());
  SortedKeys sorted;
  FE_RETURN_IF_ERROR(SortByKey(exec, keys, num_groups, &sorted));
  FE_RETURN_IF_ERROR(SplitByKey(exec, sorted.keys.span(), groups->splits.span()));
  groups->order = std::move(sorted.order);
  return Status();
}

Status GroupByRow(const GpuExec& exec, const RowIds& row_ids, int64_t num_rows, bool are_sorted,
                  GpuPairGroups* groups) {
  if (num_rows >= int64_t{std::numeric_limits<uint32_t>::max()}) {
    return ResourceExhausted("cannot group ids into ", num_rows, " rows; use a smaller batch");
  }
  DeviceBuffer<uint32_t> keys;
  FE_RETURN_IF_ERROR(keys.Allocate(exec, row_ids.size));
  FE_RETURN_IF_ERROR(Launch(exec, row_ids.size, RowKeysKernel, row_ids, keys.data()));
  return GroupByKey(exec, keys.span(), num_rows, are_sorted, groups);
}

#define FE_INSTANTIATE(T) \
  template Status CheckPairs(const GpuExec&, const Pairs<T>&, GpuPairFacts*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
