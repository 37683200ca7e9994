#include "tf_ops/core/lookup/partition.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tf_ops/core/base/hash.h"

namespace fused_embedding {
namespace {

constexpr int64_t kDeepRecBuckets = 1000;

int64_t FloorMod(int64_t a, int64_t b) {
  const int64_t remainder = a % b;
  return remainder < 0 ? remainder + b : remainder;
}

// The shards' limits, computed once for a batch.
class ShardMap {
 public:
  explicit ShardMap(const PartitionInput& in)
      : strategy_(in.strategy), shard_rows_(in.shard_rows), num_shards_(in.shard_rows.size) {
    for (const int64_t rows : in.shard_rows) num_ids_ += rows;
    if (strategy_ != PartitionStrategy::kDiv) return;
    int64_t first_id = 0;
    for (const int64_t rows : in.shard_rows) {
      first_ids_.push_back(first_id);
      first_id += rows;
    }
  }

  // The shard of `id`, or -1 where none holds it.
  int64_t Shard(int64_t id) const {
    switch (strategy_) {
      case PartitionStrategy::kDiv:
        if (id < 0 || id >= num_ids_) return -1;
        return std::upper_bound(first_ids_.begin(), first_ids_.end(), id) - first_ids_.begin() - 1;
      case PartitionStrategy::kMod: {
        const int64_t shard = FloorMod(id, num_shards_);
        return id < 0 || id / num_shards_ >= shard_rows_[shard] ? -1 : shard;
      }
      case PartitionStrategy::kModEv:
      case PartitionStrategy::kHash:
        break;
    }
    return PartitionOfKey(strategy_, id, num_shards_);
  }

  // The error for an id without a shard, at this position of the batch.
  Status NoShard(int64_t id, int64_t position) const {
    constexpr char kAdvice[] = "; prune negative ids, and hash or clip ids that are too large";
    if (strategy_ == PartitionStrategy::kMod && id >= 0) {
      const int64_t shard = id % num_shards_;
      return InvalidArgument("id ", id, " at position ", position, " is row ", id / num_shards_,
                             " of shard ", shard, " by mod, but the shard has ", shard_rows_[shard],
                             " rows", kAdvice);
    }
    return InvalidArgument("id ", id, " at position ", position, " is outside [0, ", num_ids_,
                           "), the rows of the ", num_shards_, " shards", kAdvice);
  }

  int64_t LocalId(int64_t id, int64_t shard) const {
    switch (strategy_) {
      case PartitionStrategy::kDiv:
        return id - first_ids_[static_cast<size_t>(shard)];
      case PartitionStrategy::kMod:
        return id / num_shards_;
      case PartitionStrategy::kModEv:
      case PartitionStrategy::kHash:
        break;
    }
    return id;
  }

 private:
  PartitionStrategy strategy_;
  Span<const int64_t> shard_rows_;
  int64_t num_shards_;
  int64_t num_ids_ = 0;
  std::vector<int64_t> first_ids_;  // kDiv: first id of each shard
};

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

}  // namespace

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
      return FloorMod(key, kDeepRecBuckets) % num_shards;
    case PartitionStrategy::kHash:
      return static_cast<int64_t>(Mix64(static_cast<uint64_t>(key)) %
                                  static_cast<uint64_t>(num_shards));
    case PartitionStrategy::kDiv:
    case PartitionStrategy::kMod:
      break;
  }
  return -1;
}

Status PlanPartition(const PartitionInput& in, Span<int32_t> permutation,
                     Span<int64_t> shard_sizes) {
  FE_RETURN_IF_ERROR(CheckShards(in));
  const ShardMap map(in);
  std::fill(shard_sizes.begin(), shard_sizes.end(), 0);
  for (int64_t i = 0; i < in.ids.size; ++i) {
    const int64_t shard = map.Shard(in.ids[i]);
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
    shards[shard][permutation[2 * i + 1]] = map.LocalId(in.ids[i], shard);
  }
}

}  // namespace fused_embedding
