#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/buckets.cu.h"

namespace fused_embedding {
namespace {

__global__ void CountRowsKernel(GpuTableView view, int64_t begin, int64_t num_buckets,
                                int32_t* __restrict__ num_rows) {
  const Lanes lanes(kBucketLanes);
  for (int64_t i = lanes.GroupOfGrid(); i <= num_buckets; i += lanes.NumGroupsOfGrid()) {
    int count = 0;
    if (i < num_buckets) {
      const Bucket* bucket = view.bucket(static_cast<uint32_t>(begin + i));
      count = kEntriesPerLane - __popc(MatchDigests(*bucket, lanes.lane, 0));
    }
    count = lanes.Sum(count);
    if (lanes.lane == 0) num_rows[i] = count;
  }
}

__global__ void ExportKernel(GpuTableView view, int64_t begin, int64_t num_buckets,
                             const int32_t* __restrict__ offsets, GpuRows out) {
  const Lanes lanes(kBucketLanes);
  const int64_t num_vectors = view.format.row_bytes / int64_t{sizeof(uint4)};
  for (int64_t i = lanes.GroupOfGrid(); i < num_buckets; i += lanes.NumGroupsOfGrid()) {
    const uint32_t number = static_cast<uint32_t>(begin + i);
    const Bucket* bucket = view.bucket(number);
    int64_t to = offsets[i];
    for (int entry = 0; entry < kEntries; ++entry) {
      if (bucket->digests[entry] == 0) continue;
      if (lanes.lane == 0) {
        if (out.keys) out.keys[to] = bucket->keys[entry];
        if (out.frequencies) out.frequencies[to] = bucket->frequencies[entry];
        if (out.versions) out.versions[to] = bucket->versions[entry];
        if (out.scores) out.scores[to] = bucket->Score(view.eviction, entry);
      }
      const uint4* row = reinterpret_cast<const uint4*>(view.row(HandleOf(number, entry)));
      uint4* row_out = reinterpret_cast<uint4*>(out.rows) + to * num_vectors;
      for (int64_t v = lanes.lane; out.rows && v < num_vectors; v += lanes.size)
        row_out[v] = row[v];
      ++to;
    }
  }
}

}  // namespace

Status PlanGpuExport(const GpuExec& exec, const GpuTable& table, int64_t begin, int64_t end,
                     GpuExportPlan* plan) {
  // So many that their rows can be counted by 32 bits.
  constexpr int64_t kMaxBucketsOfExport = int64_t{1} << 24;
  if (begin < 0 || end < begin || end > table.num_buckets()) {
    return InvalidArgument("buckets [", begin, ", ", end, ") must be within the table's [0, ",
                           table.num_buckets(), ")");
  }
  if (end - begin > kMaxBucketsOfExport) {
    return InvalidArgument("an export takes at most ", kMaxBucketsOfExport, " buckets, got ",
                           end - begin, "; export the table in pieces");
  }
  const int64_t num_buckets = end - begin;
  DeviceBuffer<int32_t> num_rows;
  FE_RETURN_IF_ERROR(num_rows.Allocate(exec, num_buckets + 1));
  FE_RETURN_IF_ERROR(plan->offsets.Allocate(exec, num_buckets + 1));
  FE_RETURN_IF_ERROR(Launch(exec, (num_buckets + 1) * kBucketLanes, CountRowsKernel, table.view(),
                            begin, num_buckets, num_rows.data()));
  FE_RETURN_IF_ERROR(ExclusiveSum<int32_t>(exec, num_rows.span(), plan->offsets.span()));
  int32_t sum = 0;
  FE_RETURN_IF_ERROR(ReadValue(exec, plan->offsets.data() + num_buckets, &sum));
  plan->begin = begin;
  plan->end = end;
  plan->num_changes = table.num_changes();
  plan->num_rows = sum;
  return Status();
}

Status RunGpuExport(const GpuExec& exec, const GpuTable& table, const GpuExportPlan& plan,
                    const GpuRows& out) {
  if (plan.num_changes != table.num_changes() || plan.offsets.size() != plan.end - plan.begin + 1) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "the table changed since the export was planned; call PlanGpuExport again");
  }
  if (reinterpret_cast<uintptr_t>(out.rows) % sizeof(uint4) != 0) {
    return InvalidArgument("rows must be aligned to ", sizeof(uint4), " bytes, got ",
                           reinterpret_cast<uintptr_t>(out.rows) % sizeof(uint4), " beyond");
  }
  const int64_t num_buckets = plan.end - plan.begin;
  return Launch(exec, num_buckets * kBucketLanes, ExportKernel, table.view(), plan.begin,
                num_buckets, plan.offsets.data(), out);
}

}  // namespace fused_embedding
