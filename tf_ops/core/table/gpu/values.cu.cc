#include <vector>

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/batch.cu.h"

namespace fused_embedding {
namespace {

__global__ void MetadataKernel(GpuTableView view, Span<const int64_t> handles,
                               int64_t* __restrict__ frequencies, int64_t* __restrict__ versions) {
  for (int64_t i = ThreadOfGrid(); i < handles.size; i += NumThreadsOfGrid()) {
    const int64_t handle = handles[i];
    frequencies[i] = 0;
    versions[i] = -1;
    if (handle < 0) continue;
    const Bucket* bucket = view.bucket(static_cast<uint32_t>(handle / kEntries));
    frequencies[i] = bucket->frequencies[handle % kEntries];
    versions[i] = bucket->versions[handle % kEntries];
  }
}

// The rows of handles with other values; without a handle, a new row of this version.
__global__ void RevaluedRowsKernel(GpuTableView view, Span<const int64_t> handles,
                                   const char* __restrict__ values, uint32_t version, int row_lanes,
                                   GpuRows out) {
  const Lanes lanes(row_lanes);
  const GpuRowFormat& format = view.format;
  const int64_t behind_bytes = format.row_bytes - format.value_bytes;
  for (int64_t i = lanes.GroupOfGrid(); i < handles.size; i += lanes.NumGroupsOfGrid()) {
    const int64_t handle = handles[i];
    char* row = out.rows + i * format.row_bytes;
    CopyRow(lanes, values + i * format.value_bytes, format.value_bytes, row);
    CopyRow(lanes, handle < 0 ? format.behind_value : view.row(handle) + format.value_bytes,
            behind_bytes, row + format.value_bytes);
    if (lanes.lane != 0) continue;
    out.frequencies[i] = 0;
    out.versions[i] = version;
    if (handle < 0) continue;
    const Bucket* bucket = view.bucket(static_cast<uint32_t>(handle / kEntries));
    out.frequencies[i] = bucket->frequencies[handle % kEntries];
    out.versions[i] = bucket->versions[handle % kEntries];
  }
}

struct MissingOfTable {
  int64_t end;
  unsigned long long* counter;
};

// Of a warp's 32 handles, most are of one table: one addition for all of them.
__global__ void CountMissingKernel(const MissingOfTable* __restrict__ tables, int64_t num_tables,
                                   Span<const int64_t> handles) {
  const Lanes lanes(warpSize);
  const auto table_of = [&](int64_t i) {
    return ItemOfPosition(num_tables, i, [&](int64_t t) { return tables[t].end; });
  };
  for (int64_t warp = lanes.GroupOfGrid(); warp * lanes.size < handles.size;
       warp += lanes.NumGroupsOfGrid()) {
    const int64_t first = warp * lanes.size, i = first + lanes.lane;
    const bool is_missing = i < handles.size && handles[i] < 0;
    const unsigned missing = lanes.Ballot(is_missing);
    const int64_t last = first + lanes.size < handles.size ? first + lanes.size : handles.size;
    const int64_t t = table_of(first);
    if (t == table_of(last - 1)) {
      if (lanes.lane == 0 && missing != 0) {
        atomicAdd(tables[t].counter, static_cast<unsigned long long>(__popc(missing)));
      }
    } else if (is_missing) {
      atomicAdd(tables[table_of(i)].counter, 1ull);
    }
  }
}

Status CheckOneTable(const GpuTableKeys& in) {
  if (in.tables.size == 1) return CheckGpuTableKeys(in);
  return InvalidArgument("a call takes the keys of one table, got ", in.tables.size, " tables");
}

Status FindHandles(const GpuExec& exec, const GpuTableKeys& in, DeviceBuffer<int64_t>* handles) {
  FE_RETURN_IF_ERROR(handles->Allocate(exec, in.keys.size));
  return FindInGpuTables(exec, in, {handles->span()});
}

}  // namespace

Status MakeCounters(const GpuExec& exec, int64_t n, DeviceBuffer<unsigned long long>* counters) {
  FE_RETURN_IF_ERROR(counters->Allocate(exec, n));
  return Fill(exec, 0, counters->span());
}

Status ReadCounters(const GpuExec& exec, Span<const unsigned long long> counters,
                    Span<int64_t> numbers) {
  Readback readback;
  readback.Add<int64_t>(reinterpret_cast<const int64_t*>(counters.data), numbers);
  return readback.Wait(exec);
}

Status CountMissing(const GpuExec& exec, Span<const int64_t> ends, Span<const int64_t> handles,
                    Span<unsigned long long* const> counters) {
  std::vector<MissingOfTable> tables;
  for (int64_t t = 0; t < ends.size; ++t) tables.push_back({ends[t], counters[t]});
  DeviceBuffer<MissingOfTable> uploaded;
  FE_RETURN_IF_ERROR(Upload<MissingOfTable>(exec, AsSpan(tables), &uploaded));
  return Launch(exec, handles.size, CountMissingKernel, uploaded.data(), uploaded.size(), handles);
}

Status ReadGpuMetadata(const GpuExec& exec, const GpuTableKeys& in, Span<int64_t> frequencies,
                       Span<int64_t> versions) {
  if (frequencies.size != in.keys.size || versions.size != in.keys.size) {
    return InvalidArgument("frequencies and versions must have one element for each of ",
                           in.keys.size, " keys, got ", frequencies.size, " and ", versions.size);
  }
  FE_RETURN_IF_ERROR(CheckOneTable(in));
  DeviceBuffer<int64_t> handles;
  FE_RETURN_IF_ERROR(FindHandles(exec, in, &handles));
  return Launch(exec, in.keys.size, MetadataKernel, in.tables[0]->view(),
                Span<const int64_t>(handles.span()), frequencies.data, versions.data);
}

Status RunGpuUpsertValues(const GpuExec& exec, const GpuTableKeys& in, const char* values,
                          int64_t step, const GpuInsertPlan& plan) {
  FE_RETURN_IF_ERROR(CheckOneTable(in));
  FE_RETURN_IF_ERROR(CheckGpuInsertPlan(in, plan, /*is_for_content=*/true));
  DeviceBuffer<int64_t> handles;
  FE_RETURN_IF_ERROR(FindHandles(exec, in, &handles));
  const GpuTable& table = *in.tables[0];
  DeviceBuffer<uint32_t> frequencies, versions;
  DeviceBuffer<char> rows;
  FE_RETURN_IF_ERROR(frequencies.Allocate(exec, in.keys.size));
  FE_RETURN_IF_ERROR(versions.Allocate(exec, in.keys.size));
  FE_RETURN_IF_ERROR(rows.Allocate(exec, in.keys.size * table.row_bytes()));
  const int row_lanes = NumLanes(table.row_bytes() / 16);
  const GpuRows out = {nullptr, frequencies.data(), versions.data(), nullptr, rows.data()};
  FE_RETURN_IF_ERROR(Launch(exec, in.keys.size * row_lanes, RevaluedRowsKernel, table.view(),
                            Span<const int64_t>(handles.span()), values, SaturatedVersion(step),
                            row_lanes, out));
  const char* const pointer = rows.data();
  return RunGpuUpsert(exec, in, {frequencies.span(), versions.span(), {}, {&pointer, 1}}, plan, {});
}

}  // namespace fused_embedding
