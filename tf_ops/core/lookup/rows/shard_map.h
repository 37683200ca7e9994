// The shard of an id, for the CPU and the GPU.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_SHARD_MAP_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_SHARD_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/inline.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// How ids are assigned to P shards: the shard of an id, and its local id in the shard.
enum class PartitionStrategy {
  kDiv,    // shards hold consecutive ranges of shard_rows ids; local = id - first id of the shard
  kMod,    // shard = id mod P, local = id / P
  kModEv,  // shard = id mod 1000 mod P, local = id (DeepRec's EmbeddingVariable), floor modulo
  kHash,   // shard = Mix64(id) mod P, local = id
};

// InvalidArgument for a name that is not div, mod, mod_ev or hash.
Status ParsePartitionStrategy(const std::string& name, PartitionStrategy* strategy);

// The shard of a key for the strategies that do not depend on the shards' rows, kModEv and kHash;
// -1 for the others.
int64_t PartitionOfKey(PartitionStrategy strategy, int64_t key, int64_t num_shards);

struct PartitionInput {
  Span<const int64_t> ids;         // [n]
  Span<const int64_t> shard_rows;  // [P] rows of each shard; ignored by kModEv and kHash
  PartitionStrategy strategy;
};

FE_INLINE int64_t ModEvShard(int64_t id, int64_t num_shards) {
  constexpr int64_t kDeepRecBuckets = 1000;
  const int64_t remainder = id % kDeepRecBuckets;
  return (remainder < 0 ? remainder + kDeepRecBuckets : remainder) % num_shards;
}

FE_INLINE int64_t HashShard(int64_t id, int64_t num_shards) {
  return static_cast<int64_t>(Mix64(static_cast<uint64_t>(id)) % static_cast<uint64_t>(num_shards));
}

// The limits of shards, in arrays of the host or of a device.
struct ShardMapView {
  PartitionStrategy strategy = PartitionStrategy::kDiv;
  int64_t num_shards = 0;
  int64_t num_ids = 0;                  // of kDiv
  const int64_t* shard_rows = nullptr;  // [num_shards]
  const int64_t* first_ids = nullptr;   // [num_shards] first id of each shard, for kDiv

  // The shard of `id`, or -1 if no shard has it.
  FE_INLINE int64_t Shard(int64_t id) const {
    switch (strategy) {
      case PartitionStrategy::kDiv:
        return id < 0 || id >= num_ids ? -1 : DivShard(id);
      case PartitionStrategy::kMod: {
        const int64_t shard = id < 0 ? 0 : id % num_shards;
        return id < 0 || id / num_shards >= shard_rows[shard] ? -1 : shard;
      }
      case PartitionStrategy::kModEv:
        return ModEvShard(id, num_shards);
      case PartitionStrategy::kHash:
        return HashShard(id, num_shards);
    }
    return -1;
  }

  FE_INLINE int64_t LocalId(int64_t id, int64_t shard) const {
    switch (strategy) {
      case PartitionStrategy::kDiv:
        return id - first_ids[shard];
      case PartitionStrategy::kMod:
        return id / num_shards;
      case PartitionStrategy::kModEv:
      case PartitionStrategy::kHash:
        break;
    }
    return id;
  }

 private:
  // The last shard whose first id is at most `id`.
  FE_INLINE int64_t DivShard(int64_t id) const {
    int64_t low = 0, high = num_shards;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (first_ids[middle] <= id) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low - 1;
  }
};

// The shards' limits, computed once for a batch. `in` must have been checked.
class ShardMap {
 public:
  explicit ShardMap(const PartitionInput& in);
  ShardMap(const ShardMap&) = delete;

  const ShardMapView& view() const { return view_; }
  Span<const int64_t> first_ids() const { return AsSpan(first_ids_); }
  // The error for an id without a shard, at this position of the batch.
  Status NoShard(int64_t id, int64_t position) const;

 private:
  ShardMapView view_;
  std::vector<int64_t> first_ids_;
};

// Checks the numbers of rows and the number of ids.
Status CheckShards(const PartitionInput& in);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_SHARD_MAP_H_
