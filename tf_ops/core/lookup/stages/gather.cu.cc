#include "tf_ops/core/lookup/stages/gather.h"

#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {
namespace {

// Rows that each group of lanes loads before it stores the first of them: four times 16 bytes a
// thread hide the latency of memory at half occupancy.
constexpr int kRowsInFlight = 4;

// Rows as vectors.
template <typename Vector, typename Id>
struct GatherInput {
  const Vector* table;  // [num_rows, num_vectors]
  int64_t num_rows, num_vectors;
  const Id* ids;  // [num_ids]
  int64_t num_ids;
};

template <typename Vector, typename Id>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    GatherKernel(GatherInput<Vector, Id> in, int num_lanes, Vector* __restrict__ out) {
  const Lanes lanes(num_lanes);
  for (int64_t first = lanes.GroupOfGrid() * kRowsInFlight; first < in.num_ids;
       first += lanes.NumGroupsOfGrid() * kRowsInFlight) {
    int64_t rows[kRowsInFlight];
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      rows[i] = first + i < in.num_ids ? __ldg(in.ids + first + i) : -1;
    }
    for (int64_t v = lanes.lane; v < in.num_vectors; v += lanes.size) {
      Vector vectors[kRowsInFlight];
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        const bool exists = IsIndex(rows[i], in.num_rows);
        vectors[i] = exists ? __ldg(in.table + rows[i] * in.num_vectors + v) : Vector{};
      }
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        if (first + i < in.num_ids) out[(first + i) * in.num_vectors + v] = vectors[i];
      }
    }
  }
}

template <typename Vector, typename Id>
Status GatherVectors(const GpuExec& exec, const TableView& table, Span<const Id> ids, char* out) {
  const GatherInput<Vector, Id> in = {reinterpret_cast<const Vector*>(table.data), table.num_rows,
                                      table.row_bytes / int64_t{sizeof(Vector)}, ids.data,
                                      ids.size};
  const int num_lanes = NumLanes(in.num_vectors);
  const int64_t num_groups = (ids.size + kRowsInFlight - 1) / kRowsInFlight;
  return Launch(exec, num_groups * num_lanes, GatherKernel<Vector, Id>, in, num_lanes,
                reinterpret_cast<Vector*>(out));
}

template <typename Id>
__global__ void FindBadIdKernel(const Id* __restrict__ ids, int64_t num_ids, int64_t num_rows,
                                FirstPosition* first_bad) {
  for (int64_t i = ThreadOfGrid(); i < num_ids; i += NumThreadsOfGrid()) {
    if (!IsIndex(ids[i], num_rows)) first_bad->Add(i);
  }
}

}  // namespace

template <typename Id>
Status Gather(const GpuExec& exec, const TableView& table, Span<const Id> ids, char* out) {
  if (ids.empty() || table.row_bytes == 0) return Status();
  const uint64_t bits = reinterpret_cast<uintptr_t>(table.data) | reinterpret_cast<uintptr_t>(out) |
                        static_cast<uint64_t>(table.row_bytes);
  if (bits % 16 == 0) return GatherVectors<uint4>(exec, table, ids, out);
  if (bits % 8 == 0) return GatherVectors<uint2>(exec, table, ids, out);
  if (bits % 4 == 0) return GatherVectors<uint32_t>(exec, table, ids, out);
  if (bits % 2 == 0) return GatherVectors<uint16_t>(exec, table, ids, out);
  return GatherVectors<uint8_t>(exec, table, ids, out);
}

template <typename Id>
Status CheckIds(const GpuExec& exec, int64_t num_rows, Span<const Id> ids) {
  DeviceBuffer<FirstPosition> device_bad;
  FE_RETURN_IF_ERROR(AllocateFirst(exec, 1, &device_bad));
  FE_RETURN_IF_ERROR(
      Launch(exec, ids.size, FindBadIdKernel<Id>, ids.data, ids.size, num_rows, device_bad.data()));
  FirstPosition first_bad;
  FE_RETURN_IF_ERROR(ReadValue(exec, device_bad.data(), &first_bad));
  if (!first_bad.is_found()) return Status();
  Id id = 0;
  FE_RETURN_IF_ERROR(ReadValue(exec, ids.data + first_bad.position(), &id));
  return NoSuchRow(id, first_bad.position(), num_rows);
}

#define FE_INSTANTIATE(Id)                                                         \
  template Status Gather(const GpuExec&, const TableView&, Span<const Id>, char*); \
  template Status CheckIds(const GpuExec&, int64_t, Span<const Id>);
FE_INSTANTIATE(int32_t)
FE_INSTANTIATE(int64_t)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
