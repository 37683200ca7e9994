// Rows of a batch. nvcc compiles this file without contracting products and sums (CMakeLists.txt):
// first values have the CPU's bits.

#include <cmath>

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/batch.cu.h"

namespace fused_embedding {
namespace {

__device__ double NormalDeviation(double unit, double half_mass, double max_deviations) {
  const double q = QuantileArgument(unit, half_mass);
  const double deviation = fabs(q) <= kCentral ? CentralNormalQuantile(q) : OuterNormalQuantile(q);
  return Clamped(deviation, -max_deviations, max_deviations);
}

// Number d of a first value, before it is rounded to the table's type.
__device__ double FirstNumber(const FirstValues& first, int64_t key, int64_t d) {
  const double unit = RandomUnit(RowState(first.seed_state, key), d);
  switch (first.kind) {
    case InitializerKind::kConstant:
    case InitializerKind::kMatrix:
      return first.a;
    case InitializerKind::kUniform:
      return Clamped(first.a + (first.b - first.a) * unit, first.range.low, first.range.high);
    case InitializerKind::kNormal:
      return first.a + first.b * NormalDeviation(unit, 0.5, HUGE_VAL);
    case InitializerKind::kTruncatedNormal:
      return first.a + first.b * NormalDeviation(unit, kTwoSigmaMass / 2, 2.0);
    case InitializerKind::kDebug:
      return static_cast<double>(FloorMod(key, kDebugModulus));
  }
  return 0.0;
}

template <typename T>
__device__ void WriteNumbers(const Lanes& lanes, const GpuRowFormat& format, int64_t key,
                             char* out) {
  T* value = reinterpret_cast<T*>(out);
  for (int64_t d = lanes.lane; d < format.dim; d += lanes.size) {
    value[d] = RoundTo<T>(FirstNumber(format.first_values, key, d));
  }
}

__device__ void WriteFirstValue(const Lanes& lanes, const GpuRowFormat& format, int64_t key,
                                char* out) {
  const FirstValues& first = format.first_values;
  if (first.kind == InitializerKind::kMatrix) {
    const int64_t row = FloorMod(key, first.matrix_rows);
    return CopyRow(lanes, first.matrix + row * format.value_bytes, format.value_bytes, out);
  }
  switch (format.value_type) {
    case ValueType::kFloat:
      return WriteNumbers<float>(lanes, format, key, out);
    case ValueType::kDouble:
      return WriteNumbers<double>(lanes, format, key, out);
    case ValueType::kHalf:
      return WriteNumbers<Half>(lanes, format, key, out);
    case ValueType::kBFloat16:
      return WriteNumbers<BFloat16>(lanes, format, key, out);
  }
}

template <typename T>
__device__ void FillNumbers(const Lanes& lanes, int64_t dim, double number, char* out) {
  T* value = reinterpret_cast<T*>(out);
  for (int64_t d = lanes.lane; d < dim; d += lanes.size) {
    Store(static_cast<ComputeType<T>>(number), &value[d]);
  }
}

// What a key reads that has no row, and may have none.
__device__ void WriteAbsentValue(const Lanes& lanes, const GpuRowFormat& format, int64_t key,
                                 char* out) {
  if (!format.counts_first) return WriteFirstValue(lanes, format, key, out);
  switch (format.value_type) {
    case ValueType::kFloat:
      return FillNumbers<float>(lanes, format.dim, format.no_permission_value, out);
    case ValueType::kDouble:
      return FillNumbers<double>(lanes, format.dim, format.no_permission_value, out);
    case ValueType::kHalf:
      return FillNumbers<Half>(lanes, format.dim, format.no_permission_value, out);
    case ValueType::kBFloat16:
      return FillNumbers<BFloat16>(lanes, format.dim, format.no_permission_value, out);
  }
}

__global__ void ReadValuesKernel(Batch batch, const int64_t* __restrict__ handles, bool is_insert) {
  const Lanes lanes(batch.row_lanes);
  for (int64_t i = lanes.GroupOfGrid(); i < batch.num_keys; i += lanes.NumGroupsOfGrid()) {
    const TableOfBatch& table = batch.tables[batch.TableOf(i)];
    const GpuRowFormat& format = table.view.format;
    char* value = table.values + (i - table.begin) * format.value_bytes;
    if (handles[i] >= 0) {
      CopyRow(lanes, table.view.row(handles[i]), format.value_bytes, value);
    } else if (!is_insert || !batch.IsUsed(i)) {
      WriteAbsentValue(lanes, format, batch.keys[i], value);
    } else {
      for (int64_t b = lanes.lane; b < format.value_bytes; b += lanes.size) value[b] = 0;
    }
  }
}

__device__ void CopyEvicted(const Lanes& lanes, const TableOfBatch& table,
                            const EvictedEntry& entry, const char* row, int64_t to) {
  const GpuRows& out = table.evicted;
  if (to >= table.max_evicted) return;  // of a plan for other keys
  if (lanes.lane == 0) {
    if (out.keys) out.keys[to] = entry.key;
    if (out.frequencies) out.frequencies[to] = entry.frequency;
    if (out.versions) out.versions[to] = entry.version;
    if (out.scores) out.scores[to] = entry.score;
  }
  const int64_t row_bytes = table.view.format.row_bytes;
  if (out.rows) CopyRow(lanes, row, row_bytes, out.rows + to * row_bytes);
}

__global__ void WriteRowsKernel(SortedBatch sorted, Assigned assigned,
                                const int32_t* __restrict__ evicted_before) {
  const Batch& batch = sorted.batch;
  const Lanes lanes(batch.row_lanes);
  for (int64_t j = lanes.GroupOfGrid(); j < sorted.num_keys; j += lanes.NumGroupsOfGrid()) {
    const int64_t i = sorted.order[j];
    if (!assigned.is_written[i]) continue;
    const TableOfBatch& table = batch.tables[batch.TableOf(i)];
    const GpuRowFormat& format = table.view.format;
    char* row = table.view.row(assigned.handles[i]);
    if (assigned.evicted_row && assigned.evicted_row[i]) {
      CopyEvicted(lanes, table, assigned.evicted[i], row,
                  evicted_before[i] - evicted_before[table.begin]);
      lanes.Sync();
    }
    if (table.content) {
      CopyRow(lanes, table.content + (i - table.begin) * format.row_bytes, format.row_bytes, row);
    } else {
      WriteFirstValue(lanes, format, batch.keys[i], row);
      CopyRow(lanes, format.behind_value, format.row_bytes - format.value_bytes,
              row + format.value_bytes);
    }
  }
}

}  // namespace

Status ReadValues(const GpuExec& exec, const Batch& batch, const int64_t* handles, bool is_insert) {
  return Launch(exec, batch.num_keys * batch.row_lanes, ReadValuesKernel, batch, handles,
                is_insert);
}

Status WriteRows(const GpuExec& exec, const SortedBatch& sorted, const Assigned& assigned,
                 const int32_t* evicted_before) {
  return Launch(exec, sorted.num_keys * sorted.batch.row_lanes, WriteRowsKernel, sorted, assigned,
                evicted_before);
}

}  // namespace fused_embedding
