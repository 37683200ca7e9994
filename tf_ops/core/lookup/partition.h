// Stage 3: unique ids by shard, and the permutation that finds each of them again.
//
// Example, div, shard_rows [4, 2]:
//   ids [5, 1, 4]  ->  shards [[1], [1, 0]]   permutation [[1, 0], [0, 0], [1, 1]]
//
// Inside a shard the input order is kept. Row j of the permutation is (shard, position in the
// shard) of ids[j]. An id that belongs to no shard is an error.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_PARTITION_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_PARTITION_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Where an id lives among P shards, and its id there.
enum class PartitionStrategy {
  kDiv,    // shards hold consecutive ranges of shard_rows ids; local = id - first id of the shard
  kMod,    // shard = id mod P, local = id / P
  kModEv,  // shard = id mod 1000 mod P, local = id (DeepRec's EmbeddingVariable), floor modulo
  kHash,   // shard = Mix64(id) mod P, local = id
};

// InvalidArgument for a name that is not div, mod, mod_ev or hash.
Status ParsePartitionStrategy(const std::string& name, PartitionStrategy* strategy);

// The shard of a key where that does not depend on the shards' rows: kModEv and kHash. -1 for
// others.
int64_t PartitionOfKey(PartitionStrategy strategy, int64_t key, int64_t num_shards);

struct PartitionInput {
  Span<const int64_t> ids;         // [n]
  Span<const int64_t> shard_rows;  // [P] rows of each shard; not looked at by kModEv and kHash
  PartitionStrategy strategy;
};

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

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_PARTITION_H_
