#ifndef FUSED_EMBEDDING_CORE_TABLE_BATCH_ROUTING_H_
#define FUSED_EMBEDDING_CORE_TABLE_BATCH_ROUTING_H_

#include <cstdint>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/table_shard.h"

namespace fused_embedding {

// A batch of keys, sorted by shard; keys of one shard stay in the order of the batch.
// Example, 2 shards, keys a of shard 1, b of 0, c of 1: positions {1, 0, 2}, shard 1 from 1 on.
class BatchRouting {
 public:
  // The shard of a hash: its `shard_bits` highest bits.
  static int64_t Shard(uint64_t hash, int shard_bits) {
    return static_cast<int64_t>(hash >> 1 >> (63 - shard_bits));
  }

  Status Route(Span<const int64_t> keys, uint64_t hash_key, int shard_bits) {
    keys_ = keys;
    FE_RETURN_IF_ERROR(Allocate(keys.size));
    const auto hash = [&](int64_t i) { return Mix64(static_cast<uint64_t>(keys[i]) ^ hash_key); };
    int64_t next[kMaxShards] = {};
    for (int64_t i = 0; i < keys.size; ++i) ++next[Shard(hash(i), shard_bits)];
    int64_t begin = 0;
    for (int64_t shard = 0; shard < int64_t{1} << shard_bits; ++shard) {
      begins_[shard] = begin;
      begin += next[shard];
      next[shard] = begins_[shard];
    }
    begins_[int64_t{1} << shard_bits] = begin;
    for (int64_t i = 0; i < keys.size; ++i) {
      const uint64_t hash_of_key = hash(i);  // computed again: faster than storing and reading it
      const int64_t sorted = next[Shard(hash_of_key, shard_bits)]++;
      positions_[sorted] = i;
      hashes_[sorted] = hash_of_key;
    }
    return Status();
  }

  int64_t size(int64_t shard) const { return begins_[shard + 1] - begins_[shard]; }
  ShardKeys keys(int64_t shard) const {
    return {keys_.data, positions_ + begins_[shard], hashes_ + begins_[shard], size(shard)};
  }

 private:
  Status Allocate(int64_t n) {
    positions_ = small_positions_;
    hashes_ = small_hashes_;
    if (n <= kSmall) return Status();
    FE_RETURN_IF_ERROR(large_positions_.Allocate(n));
    FE_RETURN_IF_ERROR(large_hashes_.Allocate(n));
    positions_ = large_positions_.data();
    hashes_ = large_hashes_.data();
    return Status();
  }

  static constexpr int64_t kSmall = 512;  // batches of serving need no allocation
  Span<const int64_t> keys_;
  int64_t begins_[kMaxShards + 1];
  int64_t* positions_ = nullptr;
  uint64_t* hashes_ = nullptr;
  int64_t small_positions_[kSmall];
  uint64_t small_hashes_[kSmall];
  Buffer<int64_t> large_positions_;
  Buffer<uint64_t> large_hashes_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_BATCH_ROUTING_H_
