#include "tf_ops/core/lookup/stages/pre_lookup.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/rows/pairs.h"
#include "tf_ops/core/lookup/stages/partition.cu.h"

namespace fused_embedding {
namespace {

// What the CPU has after stage 1, without moving anything: first the ids, of which some were
// dropped, then a position for each row that may be filled.
struct Positions {
  PruneAndFillInput<float> in;
  const int32_t* is_row_empty;

  __device__ bool IsUsed(int64_t position) const {
    const int64_t row = position - in.ids.size;
    return row < 0 ? in.IsKept(position) : is_row_empty[row] != 0;
  }
  __device__ int64_t id(int64_t position) const {
    return position < in.ids.size ? in.ids[position] : in.filled_id();
  }
  __device__ int64_t row(int64_t position) const {
    return position < in.ids.size ? in.indices[2 * position] : position - in.ids.size;
  }
  __device__ int64_t column(int64_t position) const {
    return position < in.ids.size ? in.indices[2 * position + 1] : 0;
  }
};

// Flags of ids, and of rows as if all were empty.
__global__ void StartFlagsKernel(PruneAndFillInput<float> in, int32_t* __restrict__ flags) {
  const int64_t size = in.num_rows > in.ids.size ? in.num_rows : in.ids.size;
  for (int64_t i = ThreadOfGrid(); i < size; i += NumThreadsOfGrid()) {
    if (i < in.num_rows) flags[i] = 1;
    if (i < in.ids.size) flags[in.num_rows + i] = in.ids[i] >= 0;
  }
}

__global__ void FlagRowsKernel(PruneAndFillInput<float> in, int32_t* __restrict__ flags,
                               uint32_t* is_bad) {
  for (int64_t i = ThreadOfGrid(); i < in.ids.size; i += NumThreadsOfGrid()) {
    const int64_t row = in.indices[2 * i];
    if (!IsIndex(row, in.num_rows)) {
      atomicOr(is_bad, 1u);
    } else if (in.IsKept(i)) {
      flags[row] = 0;  // whoever writes it
    }
  }
}

// Positions that are not used get a shard behind the others.
__global__ void FindShardOfPositionKernel(Positions positions, int64_t num_positions,
                                          ShardMapView map, uint32_t* __restrict__ shard_of,
                                          uint32_t* is_bad) {
  for (int64_t i = ThreadOfGrid(); i < num_positions; i += NumThreadsOfGrid()) {
    int64_t shard = map.num_shards;
    if (positions.IsUsed(i)) shard = map.Shard(positions.id(i));
    if (shard < 0) atomicOr(is_bad, 1u);
    shard_of[i] = static_cast<uint32_t>(shard < 0 ? map.num_shards : shard);
  }
}

struct ShardOut {
  int64_t* ids;      // [n_p]
  int64_t* indices;  // [n_p, 2]
};

// Positions sorted by shard, in order within each, are where they belong.
struct SortedPositions {
  const uint32_t* shard;
  const int32_t* position;
  int64_t num_used;
  const int32_t* shard_begins;
};

__global__ void DealOutPositionsKernel(Positions positions, SortedPositions sorted,
                                       ShardMapView map, const ShardOut* __restrict__ shards) {
  for (int64_t k = ThreadOfGrid(); k < sorted.num_used; k += NumThreadsOfGrid()) {
    const int64_t position = sorted.position[k];
    const int64_t shard = sorted.shard[k];
    const int64_t to = k - sorted.shard_begins[shard];
    const ShardOut& out = shards[shard];
    out.ids[to] = map.LocalId(positions.id(position), shard);
    out.indices[2 * to] = positions.row(position);
    out.indices[2 * to + 1] = positions.column(position);
  }
}

PartitionInput ShardsOf(const PreLookupInput& in) {
  return {in.pairs.ids, in.shard_rows, in.strategy};
}

// One stage after the other says which row, or id, is wrong.
Status NameError(const GpuExec& exec, const PreLookupInput& in) {
  DeviceBuffer<bool> is_row_empty;
  GpuPruneAndFillPlan filled;
  FE_RETURN_IF_ERROR(is_row_empty.Allocate(exec, in.pairs.num_rows));
  FE_RETURN_IF_ERROR(PlanPruneAndFill(exec, in.pairs, is_row_empty.span(), &filled));
  const int64_t nnz = filled.sizes.nnz_out();
  DeviceBuffer<int64_t> ids, indices;
  FE_RETURN_IF_ERROR(ids.Allocate(exec, nnz));
  FE_RETURN_IF_ERROR(indices.Allocate(exec, 2 * nnz));
  FE_RETURN_IF_ERROR(RunPruneAndFill<float>(exec, in.pairs, filled, is_row_empty.span(),
                                            {ids.span(), indices.span(), {}}));
  DeviceBuffer<int32_t> permutation;
  std::vector<int64_t> shard_sizes(static_cast<size_t>(in.shard_rows.size));
  GpuPartitionPlan plan;
  FE_RETURN_IF_ERROR(permutation.Allocate(exec, 2 * nnz));
  return PlanPartition(exec, {ids.span(), in.shard_rows, in.strategy}, permutation.span(),
                       AsSpan(shard_sizes), &plan);
}

// At most as many positions as can be numbered.
Status CountPositions(const PruneAndFillInput<float>& pairs, int64_t* num_positions) {
  if (__builtin_add_overflow(pairs.ids.size, pairs.fill ? pairs.num_rows : 0, num_positions)) {
    *num_positions = std::numeric_limits<int64_t>::max();
  }
  return CheckNumPairs(*num_positions);
}

}  // namespace

Status PlanPreLookup(const GpuExec& exec, const PreLookupInput& in, Span<int32_t> flags,
                     Span<int64_t> shard_sizes, GpuPreLookupPlan* plan) {
  const PruneAndFillInput<float>& pairs = in.pairs;
  int64_t num_positions = 0;
  FE_RETURN_IF_ERROR(CheckSizes(pairs));
  FE_RETURN_IF_ERROR(CheckShards(ShardsOf(in)));
  FE_RETURN_IF_ERROR(CountPositions(pairs, &num_positions));
  const ShardMap map(ShardsOf(in));
  const int64_t num_shards = in.shard_rows.size;
  FE_RETURN_IF_ERROR(UploadShards(exec, ShardsOf(in), map, &plan->shards));
  DeviceBuffer<uint32_t> device_bad, shard_of;
  FE_RETURN_IF_ERROR(device_bad.Allocate(exec, 1));
  FE_RETURN_IF_ERROR(shard_of.Allocate(exec, num_positions));
  FE_RETURN_IF_ERROR(plan->shard_begins.Allocate(exec, num_shards + 1));
  FE_RETURN_IF_ERROR(Fill(exec, 0, device_bad.span()));
  FE_RETURN_IF_ERROR(
      Launch(exec, std::max(pairs.num_rows, pairs.ids.size), StartFlagsKernel, pairs, flags.data));
  FE_RETURN_IF_ERROR(
      Launch(exec, pairs.ids.size, FlagRowsKernel, pairs, flags.data, device_bad.data()));
  FE_RETURN_IF_ERROR(Launch(exec, num_positions, FindShardOfPositionKernel,
                            Positions{pairs, flags.data}, num_positions,
                            OnDevice(map, plan->shards), shard_of.data(), device_bad.data()));
  FE_RETURN_IF_ERROR(SortByKey(exec, shard_of.span(), num_shards + 1, &plan->by_shard));
  FE_RETURN_IF_ERROR(SplitByKey(exec, plan->by_shard.keys.span(), plan->shard_begins.span()));
  uint32_t is_bad = 0;
  std::vector<int32_t> begins(static_cast<size_t>(num_shards) + 1);
  Readback readback;
  readback.Add<uint32_t>(device_bad.data(), {&is_bad, 1});
  readback.Add<int32_t>(plan->shard_begins.data(), AsSpan(begins));
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  if (is_bad) return NameError(exec, in);
  for (size_t p = 0; p + 1 < begins.size(); ++p) {
    shard_sizes[static_cast<int64_t>(p)] = begins[p + 1] - begins[p];
  }
  plan->num_pairs = begins.back();
  return Status();
}

Status RunPreLookup(const GpuExec& exec, const PreLookupInput& in, const GpuPreLookupPlan& plan,
                    Span<const Span<int64_t>> shard_ids, Span<const Span<int64_t>> shard_indices) {
  std::vector<ShardOut> shards;
  for (int64_t p = 0; p < shard_ids.size; ++p) {
    shards.push_back({shard_ids[p].data, shard_indices[p].data});
  }
  DeviceBuffer<ShardOut> device_shards;
  FE_RETURN_IF_ERROR(Upload<ShardOut>(exec, AsSpan(shards), &device_shards));
  const ShardMap map(ShardsOf(in));
  const SortedPositions sorted = {plan.by_shard.keys.data(), plan.by_shard.order.data(),
                                  plan.num_pairs, plan.shard_begins.data()};
  // Which rows are empty only says which positions are used.
  return Launch(exec, plan.num_pairs, DealOutPositionsKernel, Positions{in.pairs, nullptr}, sorted,
                OnDevice(map, plan.shards), device_shards.data());
}

}  // namespace fused_embedding
