#include <algorithm>
#include <vector>

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/batch.cu.h"
#include "tf_ops/core/table/gpu/count_keys.cu.h"

namespace fused_embedding {
namespace {

__global__ void FindKernel(Batch batch, int64_t* __restrict__ handles) {
  const Lanes lanes(kBucketLanes);
  for (int64_t i = lanes.GroupOfGrid(); i < batch.num_keys; i += lanes.NumGroupsOfGrid()) {
    if (!batch.IsUsed(i)) {
      if (lanes.lane == 0) handles[i] = -1;
      continue;
    }
    const GpuTableView& view = batch.tables[batch.TableOf(i)].view;
    const int64_t key = batch.keys[i];
    const uint64_t hash = view.Hash(key);
    const uint32_t number = view.BucketOf(hash);
    const int entry = FindEntry(lanes, *view.bucket(number), key, GpuTableView::Digest(hash));
    if (lanes.lane == 0) handles[i] = entry < 0 ? -1 : HandleOf(number, entry);
  }
}

__global__ void EraseKernel(SortedBatch sorted, bool* __restrict__ is_erased) {
  ForEachBucket(sorted, [&](const Lanes& lanes, int64_t t, uint32_t number, const Range& run) {
    const GpuTableView& view = sorted.batch.tables[t].view;
    Bucket* bucket = view.bucket(number);
    for (int64_t i = run.begin; i < run.end; ++i) {
      const int64_t position = sorted.order[i];
      const int64_t key = sorted.batch.keys[position];
      const int entry = FindEntry(lanes, *bucket, key, GpuTableView::Digest(view.Hash(key)));
      if (lanes.lane == 0) {
        if (entry >= 0) bucket->digests[entry] = 0;
        is_erased[position] = entry >= 0;
      }
      lanes.Sync();
    }
  });
}

}  // namespace

Status FindRows(const GpuExec& exec, const Batch& batch, int64_t* handles) {
  return Launch(exec, batch.num_keys * kBucketLanes, FindKernel, batch, handles);
}

Status FindInGpuTables(const GpuExec& exec, const GpuTableKeys& in, const GpuLookupOutput& out) {
  FE_RETURN_IF_ERROR(CheckGpuTableKeys(in));
  FE_RETURN_IF_ERROR(CheckGpuLookupOutput(in, out));
  UploadedBatch uploaded;
  FE_RETURN_IF_ERROR(uploaded.Upload(exec, TablesOfBatch(in, out.values), in));
  const Batch& batch = uploaded.batch();
  FE_RETURN_IF_ERROR(FindRows(exec, batch, out.handles.data));
  if (out.values.empty()) return Status();
  return ReadValues(exec, batch, out.handles.data, /*is_insert=*/false);
}

Status EraseFromGpuTables(const GpuExec& exec, const GpuTableKeys& in, Span<bool> is_erased) {
  FE_RETURN_IF_ERROR(CheckGpuTableKeys(in));
  if (is_erased.size != in.keys.size) {
    return InvalidArgument("is_erased must have one element for each of ", in.keys.size,
                           " keys, got ", is_erased.size);
  }
  UploadedBatch uploaded;
  FE_RETURN_IF_ERROR(uploaded.Upload(exec, TablesOfBatch(in, {}), in));
  DeviceBuffer<uint32_t> buckets;
  DeviceBuffer<int32_t> order;
  FE_RETURN_IF_ERROR(SortByBucket(exec, uploaded.batch(), &buckets, &order));
  if (in.is_used) FE_RETURN_IF_ERROR(Fill(exec, 0, is_erased));
  ChangeTables(in);
  FE_RETURN_IF_ERROR(Launch(
      exec, in.keys.size * kBucketLanes, EraseKernel,
      SortedBatch{uploaded.batch(), in.keys.size, buckets.data(), order.data()}, is_erased.data));
  return EraseCounts(exec, in);
}

Status EraseFromGpuTables(const GpuExec& exec, const GpuTableKeys& in, int64_t* num_erased) {
  DeviceBuffer<bool> is_erased;
  FE_RETURN_IF_ERROR(is_erased.Allocate(exec, in.keys.size));
  FE_RETURN_IF_ERROR(EraseFromGpuTables(exec, in, is_erased.span()));
  std::vector<char> on_host(static_cast<size_t>(in.keys.size));
  Readback readback;
  readback.Add<char>(reinterpret_cast<const char*>(is_erased.data()), AsSpan(on_host));
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  *num_erased = std::count(on_host.begin(), on_host.end(), 1);
  return Status();
}

}  // namespace fused_embedding
