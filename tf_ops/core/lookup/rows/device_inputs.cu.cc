#include "tf_ops/core/lookup/rows/device_inputs.h"

#include <vector>

#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {
namespace {

__global__ void LocateKernel(const ShardRows* __restrict__ shards, int64_t num_shards,
                             int64_t row_bytes, const int32_t* __restrict__ permutation,
                             Span<uintptr_t> rows) {
  for (int64_t u = ThreadOfGrid(); u < rows.size; u += NumThreadsOfGrid()) {
    int64_t shard = 0, row = 0;
    if (permutation) {
      shard = permutation[2 * u];
      row = permutation[2 * u + 1];
    } else {
      while (shard + 1 < num_shards && shards[shard + 1].first <= u) ++shard;
      row = u - shards[shard].first;
    }
    rows[u] = shards[shard].address + static_cast<uintptr_t>(row * row_bytes);
  }
}

// The row that an entry stands for, or -1.
__device__ inline int64_t RowOfEntry(const int32_t* entry, const int64_t* first_rows,
                                     int64_t num_shards) {
  if (!IsIndex(entry[0], num_shards)) return -1;
  const int64_t first = first_rows[entry[0]];
  return IsIndex(entry[1], first_rows[entry[0] + 1] - first) ? first + entry[1] : -1;
}

// first_entry[row] is the first entry that stands for it.
__global__ void ClaimRowsKernel(Span<const int32_t> permutation,
                                const int64_t* __restrict__ first_rows, int64_t num_shards,
                                FirstPosition* first_entry, FirstPosition* first_bad) {
  for (int64_t u = ThreadOfGrid(); 2 * u < permutation.size; u += NumThreadsOfGrid()) {
    const int64_t row = RowOfEntry(permutation.data + 2 * u, first_rows, num_shards);
    (row < 0 ? first_bad : first_entry + row)->Add(u);
  }
}

__global__ void FindRepeatedKernel(Span<const int32_t> permutation,
                                   const int64_t* __restrict__ first_rows, int64_t num_shards,
                                   const FirstPosition* __restrict__ first_entry,
                                   FirstPosition* first_bad) {
  for (int64_t u = ThreadOfGrid(); 2 * u < permutation.size; u += NumThreadsOfGrid()) {
    const int64_t row = RowOfEntry(permutation.data + 2 * u, first_rows, num_shards);
    if (row >= 0 && first_entry[row].position() != u) first_bad->Add(u);
  }
}

__global__ void FindDecreaseKernel(RowIds rows, FirstPosition* first_bad) {
  for (int64_t i = ThreadOfGrid(); i < rows.size; i += NumThreadsOfGrid()) {
    if (rows[i] < 0 || (i > 0 && rows[i] < rows[i - 1])) first_bad->Add(i);
  }
}

__global__ void CopyRowIdsKernel(RowIds rows, int64_t* __restrict__ out) {
  for (int64_t i = ThreadOfGrid(); i < rows.size; i += NumThreadsOfGrid()) out[i] = rows[i];
}

__global__ void EnumerateKernel(Span<int32_t> out) {
  for (int64_t i = ThreadOfGrid(); i < out.size; i += NumThreadsOfGrid()) {
    out[i] = static_cast<int32_t>(i);
  }
}

__global__ void FlagsToBoolsKernel(Span<const int32_t> flags, bool* __restrict__ out) {
  for (int64_t i = ThreadOfGrid(); i < flags.size; i += NumThreadsOfGrid()) out[i] = flags[i] != 0;
}

template <typename Value, typename C>
__global__ void ConvertKernel(Span<const Value> values, C* __restrict__ out) {
  for (int64_t i = ThreadOfGrid(); i < values.size; i += NumThreadsOfGrid()) {
    out[i] = static_cast<C>(Load(values[i]));
  }
}

template <typename C, typename Value>
__global__ void StoreKernel(Span<const C> values, Value* __restrict__ out) {
  for (int64_t i = ThreadOfGrid(); i < values.size; i += NumThreadsOfGrid()) {
    Store(static_cast<ComputeType<Value>>(values[i]), &out[i]);
  }
}

}  // namespace

Status LocateRows(const GpuExec& exec, Span<const ShardRows> shards, int64_t row_bytes,
                  Span<const int32_t> permutation, Span<uintptr_t> rows) {
  DeviceBuffer<ShardRows> device_shards;
  FE_RETURN_IF_ERROR(Upload(exec, shards, &device_shards));
  return Launch(exec, rows.size, LocateKernel, device_shards.data(), shards.size, row_bytes,
                permutation.data, rows);
}

Status CheckPermutation(const GpuExec& exec, Span<const int64_t> shard_sizes,
                        Span<const int32_t> permutation) {
  std::vector<int64_t> first_rows = {0};
  for (const int64_t size : shard_sizes) first_rows.push_back(first_rows.back() + size);
  const int64_t num_shards = shard_sizes.size, num_entries = permutation.size / 2;
  DeviceBuffer<int64_t> device_first_rows;
  DeviceBuffer<FirstPosition> first_entry;  // of each row; then the first that is wrong
  FE_RETURN_IF_ERROR(Upload<int64_t>(exec, AsSpan(first_rows), &device_first_rows));
  FE_RETURN_IF_ERROR(AllocateFirst(exec, first_rows.back() + 1, &first_entry));
  FirstPosition* device_bad = first_entry.data() + first_rows.back();
  FE_RETURN_IF_ERROR(Launch(exec, num_entries, ClaimRowsKernel, permutation,
                            device_first_rows.data(), num_shards, first_entry.data(), device_bad));
  FE_RETURN_IF_ERROR(Launch(exec, num_entries, FindRepeatedKernel, permutation,
                            device_first_rows.data(), num_shards, first_entry.data(), device_bad));
  FirstPosition first_bad;
  FE_RETURN_IF_ERROR(ReadValue(exec, device_bad, &first_bad));
  if (!first_bad.is_found()) return Status();
  int32_t entry[2] = {0, 0};
  Readback readback;
  readback.Add<int32_t>(permutation.data + 2 * first_bad.position(), {entry, 2});
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  const bool exists =
      entry[0] >= 0 && entry[0] < num_shards && entry[1] >= 0 && entry[1] < shard_sizes[entry[0]];
  return BadPermutation(first_bad.position(), entry[0], entry[1], exists);
}

Status LastRowOf(const GpuExec& exec, const RowIds& rows, int64_t* last) {
  *last = -1;
  if (rows.size == 0) return Status();
  DeviceBuffer<FirstPosition> device_bad;
  FE_RETURN_IF_ERROR(AllocateFirst(exec, 1, &device_bad));
  FE_RETURN_IF_ERROR(Launch(exec, rows.size, FindDecreaseKernel, rows, device_bad.data()));
  FirstPosition first_bad;
  Readback readback;
  readback.Add<FirstPosition>(device_bad.data(), {&first_bad, 1});
  readback.Add<int64_t>(rows.data + (rows.size - 1) * rows.stride, {last, 1});
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  if (!first_bad.is_found()) return Status();
  const int64_t position = first_bad.position();
  const int64_t* bad_row = rows.data + position * rows.stride;
  int64_t row = 0, previous = -1;
  FE_RETURN_IF_ERROR(ReadValue(exec, bad_row, &row));
  if (position > 0) FE_RETURN_IF_ERROR(ReadValue(exec, bad_row - rows.stride, &previous));
  return RowDecreases(rows.name, position, row, previous);
}

Status CopyRowIds(const GpuExec& exec, const RowIds& rows, int64_t* out) {
  return Launch(exec, rows.size, CopyRowIdsKernel, rows, out);
}

Status Enumerate(const GpuExec& exec, Span<int32_t> out) {
  return Launch(exec, out.size, EnumerateKernel, out);
}

Status FlagsToBools(const GpuExec& exec, Span<const int32_t> flags, Span<bool> out) {
  return Launch(exec, flags.size, FlagsToBoolsKernel, flags, out.data);
}

template <typename Value, typename C>
Status ConvertValues(const GpuExec& exec, Span<const Value> values, C* out) {
  return Launch(exec, values.size, ConvertKernel<Value, C>, values, out);
}

template <typename C, typename Value>
Status StoreValues(const GpuExec& exec, Span<const C> values, Value* out) {
  return Launch(exec, values.size, StoreKernel<C, Value>, values, out);
}

#define FE_INSTANTIATE(Value)                                                \
  template Status ConvertValues(const GpuExec&, Span<const Value>, float*);  \
  template Status ConvertValues(const GpuExec&, Span<const Value>, double*); \
  template Status StoreValues(const GpuExec&, Span<const float>, Value*);    \
  template Status StoreValues(const GpuExec&, Span<const double>, Value*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
