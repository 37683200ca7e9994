#include "tf_ops/core/lookup/stages/partition.cu.h"

#include <vector>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/kernel.cu.h"

namespace fused_embedding {
namespace {

__global__ void FindShardOfIdKernel(Span<const int64_t> ids, ShardMapView map,
                                    uint32_t* __restrict__ shard_of, FirstPosition* first_bad) {
  for (int64_t i = ThreadOfGrid(); i < ids.size; i += NumThreadsOfGrid()) {
    const int64_t shard = map.Shard(ids[i]);
    if (shard < 0) first_bad->Add(i);
    shard_of[i] = shard < 0 ? 0 : static_cast<uint32_t>(shard);
  }
}

// Ids sorted by shard, in input order within each, are at the positions that they have there.
__global__ void PermuteKernel(const uint32_t* __restrict__ sorted_shards,
                              const int32_t* __restrict__ order, int64_t num_ids,
                              const int32_t* __restrict__ shard_begins,
                              int32_t* __restrict__ permutation) {
  for (int64_t k = ThreadOfGrid(); k < num_ids; k += NumThreadsOfGrid()) {
    const int32_t shard = static_cast<int32_t>(sorted_shards[k]);
    permutation[2 * int64_t{order[k]}] = shard;
    permutation[2 * int64_t{order[k]} + 1] = static_cast<int32_t>(k) - shard_begins[shard];
  }
}

__global__ void DealOutIdsKernel(Span<const int64_t> ids, ShardMapView map,
                                 const int32_t* __restrict__ permutation,
                                 const Span<int64_t>* __restrict__ shards) {
  for (int64_t i = ThreadOfGrid(); i < ids.size; i += NumThreadsOfGrid()) {
    const int32_t shard = permutation[2 * i];
    shards[shard][permutation[2 * i + 1]] = map.LocalId(ids[i], shard);
  }
}

}  // namespace

Status PlanPartition(const GpuExec& exec, const PartitionInput& in, Span<int32_t> permutation,
                     Span<int64_t> shard_sizes, GpuPartitionPlan* plan) {
  FE_RETURN_IF_ERROR(CheckShards(in));
  const ShardMap map(in);
  const int64_t num_shards = in.shard_rows.size;
  FE_RETURN_IF_ERROR(UploadShards(exec, in, map, plan));
  DeviceBuffer<uint32_t> shard_of;
  DeviceBuffer<FirstPosition> device_bad;
  DeviceBuffer<int32_t> device_begins;
  SortedKeys sorted;
  FE_RETURN_IF_ERROR(shard_of.Allocate(exec, in.ids.size));
  FE_RETURN_IF_ERROR(AllocateFirst(exec, 1, &device_bad));
  FE_RETURN_IF_ERROR(device_begins.Allocate(exec, num_shards + 1));
  FE_RETURN_IF_ERROR(Launch(exec, in.ids.size, FindShardOfIdKernel, in.ids, OnDevice(map, *plan),
                            shard_of.data(), device_bad.data()));
  FE_RETURN_IF_ERROR(SortByKey(exec, shard_of.span(), num_shards, &sorted));
  FE_RETURN_IF_ERROR(SplitByKey(exec, sorted.keys.span(), device_begins.span()));
  FE_RETURN_IF_ERROR(Launch(exec, in.ids.size, PermuteKernel, sorted.keys.data(),
                            sorted.order.data(), in.ids.size, device_begins.data(),
                            permutation.data));
  FirstPosition first_bad;
  std::vector<int32_t> begins(static_cast<size_t>(num_shards) + 1);
  Readback readback;
  readback.Add<FirstPosition>(device_bad.data(), {&first_bad, 1});
  readback.Add<int32_t>(device_begins.data(), AsSpan(begins));
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  if (first_bad.is_found()) {
    int64_t id = 0;
    FE_RETURN_IF_ERROR(ReadValue(exec, in.ids.data + first_bad.position(), &id));
    return map.NoShard(id, first_bad.position());
  }
  for (size_t p = 0; p + 1 < begins.size(); ++p) {
    shard_sizes[static_cast<int64_t>(p)] = begins[p + 1] - begins[p];
  }
  return Status();
}

Status RunPartition(const GpuExec& exec, const PartitionInput& in, const GpuPartitionPlan& plan,
                    Span<const int32_t> permutation, Span<const Span<int64_t>> shards) {
  DeviceBuffer<Span<int64_t>> device_shards;
  FE_RETURN_IF_ERROR(Upload(exec, shards, &device_shards));
  const ShardMap map(in);
  return Launch(exec, in.ids.size, DealOutIdsKernel, in.ids, OnDevice(map, plan), permutation.data,
                device_shards.data());
}

}  // namespace fused_embedding
