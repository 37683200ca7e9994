#include "tf_ops/core/lookup/stages/partition.h"

#include <algorithm>

namespace fused_embedding {

Status PlanPartition(const PartitionInput& in, Span<int32_t> permutation,
                     Span<int64_t> shard_sizes) {
  FE_RETURN_IF_ERROR(CheckShards(in));
  const ShardMap map(in);
  std::fill(shard_sizes.begin(), shard_sizes.end(), 0);
  for (int64_t i = 0; i < in.ids.size; ++i) {
    const int64_t shard = map.view().Shard(in.ids[i]);
    if (shard < 0) {
      return map.NoShard(in.ids[i], i);
    }
    permutation[2 * i] = static_cast<int32_t>(shard);
    permutation[2 * i + 1] = static_cast<int32_t>(shard_sizes[shard]++);
  }
  return Status();
}

void RunPartition(const PartitionInput& in, Span<const int32_t> permutation,
                  Span<const Span<int64_t>> shards) {
  const ShardMap map(in);
  for (int64_t i = 0; i < in.ids.size; ++i) {
    const int64_t shard = permutation[2 * i];
    shards[shard][permutation[2 * i + 1]] = map.view().LocalId(in.ids[i], shard);
  }
}

}  // namespace fused_embedding
