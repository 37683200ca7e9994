#include "tf_ops/core/lookup/rows/shard_map.h"

#include <limits>

namespace fused_embedding {

Status ParsePartitionStrategy(const std::string& name, PartitionStrategy* strategy) {
  struct Entry {
    const char* name;
    PartitionStrategy strategy;
  };
  constexpr Entry kEntries[] = {{"div", PartitionStrategy::kDiv},
                                {"mod", PartitionStrategy::kMod},
                                {"mod_ev", PartitionStrategy::kModEv},
                                {"hash", PartitionStrategy::kHash}};
  for (const Entry& entry : kEntries) {
    if (name != entry.name) continue;
    *strategy = entry.strategy;
    return Status();
  }
  return InvalidArgument("partition_strategy must be div, mod, mod_ev or hash, got ", name);
}

int64_t PartitionOfKey(PartitionStrategy strategy, int64_t key, int64_t num_shards) {
  switch (strategy) {
    case PartitionStrategy::kModEv:
      return ModEvShard(key, num_shards);
    case PartitionStrategy::kHash:
      return HashShard(key, num_shards);
    case PartitionStrategy::kDiv:
    case PartitionStrategy::kMod:
      break;
  }
  return -1;
}

ShardMap::ShardMap(const PartitionInput& in) {
  view_.strategy = in.strategy;
  view_.num_shards = in.shard_rows.size;
  view_.shard_rows = in.shard_rows.data;
  for (const int64_t rows : in.shard_rows) {
    first_ids_.push_back(view_.num_ids);
    view_.num_ids += rows;
  }
  view_.first_ids = first_ids_.data();
}

Status ShardMap::NoShard(int64_t id, int64_t position) const {
  constexpr char kAdvice[] = "; prune negative ids, and hash or clip ids that are too large";
  const int64_t num_shards = view_.num_shards;
  if (view_.strategy == PartitionStrategy::kMod && id >= 0) {
    const int64_t shard = id % num_shards;
    return InvalidArgument("id ", id, " at position ", position, " is row ", id / num_shards,
                           " of shard ", shard, " by mod, but the shard has ",
                           view_.shard_rows[shard], " rows", kAdvice);
  }
  return InvalidArgument("id ", id, " at position ", position, " is outside [0, ", view_.num_ids,
                         "), the rows of the ", num_shards, " shards", kAdvice);
}

Status CheckShards(const PartitionInput& in) {
  if (in.shard_rows.empty()) return InvalidArgument("there must be at least one shard, got none");
  int64_t num_ids = 0;
  for (int64_t p = 0; p < in.shard_rows.size; ++p) {
    const int64_t rows = in.shard_rows[p];
    if (rows < 0 || num_ids > std::numeric_limits<int64_t>::max() - rows) {
      return InvalidArgument("partition_shapes[", p, "][0] = ", rows,
                             " must be a number of rows: not negative, and int64 in total");
    }
    num_ids += rows;
  }
  if (in.ids.size > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("at most ", std::numeric_limits<int32_t>::max(),
                           " ids can be partitioned at once, got ", in.ids.size,
                           "; use a smaller batch");
  }
  return Status();
}

}  // namespace fused_embedding
