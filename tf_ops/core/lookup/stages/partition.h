// Stage 3: unique ids by shard, and the permutation that finds each of them again.
//
// Example, div, shard_rows [4, 2]:
//   ids [5, 1, 4]  ->  shards [[1], [1, 0]]   permutation [[1, 0], [0, 0], [1, 1]]
//
// Inside a shard the input order is kept. Row j of the permutation is (shard, position in the
// shard) of ids[j]. An id that belongs to no shard is an error.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PARTITION_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PARTITION_H_

#include <cstdint>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/rows/shard_map.h"

namespace fused_embedding {

// Writes `permutation` [n, 2] and the number of ids in each shard, `shard_sizes` [P].
Status PlanPartition(const PartitionInput& in, Span<int32_t> permutation,
                     Span<int64_t> shard_sizes);

// Writes the local ids: shards[p] has shard_sizes[p] elements.
void RunPartition(const PartitionInput& in, Span<const int32_t> permutation,
                  Span<const Span<int64_t>> shards);

// The same on a GPU, with the same result. shard_rows, shard_sizes and the list of shards are host
// memory. Plan waits once, for the sizes and the first id that no shard holds.
struct GpuPartitionPlan {
  DeviceBuffer<int64_t> shard_rows;  // [P]
  DeviceBuffer<int64_t> first_ids;   // [P]
};

Status PlanPartition(const GpuExec& exec, const PartitionInput& in, Span<int32_t> permutation,
                     Span<int64_t> shard_sizes, GpuPartitionPlan* plan);

Status RunPartition(const GpuExec& exec, const PartitionInput& in, const GpuPartitionPlan& plan,
                    Span<const int32_t> permutation, Span<const Span<int64_t>> shards);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PARTITION_H_
