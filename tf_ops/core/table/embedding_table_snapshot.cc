// What a save copies of a table, and filters of a restore.

#include <mutex>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/table/batch_routing.h"
#include "tf_ops/core/table/embedding_table.h"
#include "tf_ops/core/table/shard_loops.h"
#include "tf_ops/core/table/table_shard.h"
#include "tf_ops/core/table/tier/cold_tier.h"

namespace fused_embedding {

Status EmbeddingTable::CopyShard(int64_t shard, RowLayout* layout, std::vector<char>* rows,
                                 FilteredKeys* filtered) const {
  return WithoutExceptions([&] {
    const TableShard& source = *shards_[static_cast<size_t>(shard)];
    std::unique_lock<std::mutex> lock(source.mutex());
    const size_t begin = rows->size(), bytes = source.rows_bytes();
    // New memory takes longer to get than to copy into: not under the lock.
    lock.unlock();
    rows->resize(begin + bytes + bytes / 32);
    lock.lock();
    source.CopyRows(layout, begin, rows);
    source.CopyFiltered(filtered);
    return Status();
  });
}

Status EmbeddingTable::CopyCold(const VisitRowBytes& visit) const {
  if (tier_ == nullptr) return Status();
  const auto lock = tier_->Share();
  return tier_->Scan(visit);
}

Status EmbeddingTable::CheckpointCold(const std::string& path, RowLayout* layout) const {
  const auto lock = tier_->Share();
  return tier_->Checkpoint(path, layout);
}

Status EmbeddingTable::AdoptCold(const std::string& checkpoint, Span<const Slot> slots,
                                 Span<const int64_t> num_rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return WithoutExceptions([&] {
    RowLayout layout = layout_;
    layout.slots.assign(slots.begin(), slots.end());
    FE_RETURN_IF_ERROR(tier_->Adopt(checkpoint, layout, num_rows));
    Forget(std::move(layout));
    return Status();
  });
}

int64_t EmbeddingTable::ShardOf(int64_t key) const {
  return BatchRouting::Shard(Mix64(static_cast<uint64_t>(key) ^ hash_key_), shard_bits_);
}

Status EmbeddingTable::CopyBloom(std::vector<char>* bytes) const {
  bytes->clear();
  return ForEachShard(shards_, [&](const TableShard* shard) {
    const Span<const char> counters = shard->bloom_bytes();
    bytes->insert(bytes->end(), counters.begin(), counters.end());
    return Status();
  });
}

int64_t EmbeddingTable::BloomBytes() const {
  int64_t num_bytes = 0;
  for (const std::unique_ptr<TableShard>& shard : shards_) num_bytes += shard->bloom_bytes().size;
  return num_bytes;
}

Status EmbeddingTable::CheckBloom(Span<const char> bytes) const {
  const int64_t num_bytes = BloomBytes();
  if (num_bytes == bytes.size) return Status();
  return InvalidArgument("the table has a Bloom filter of ", num_bytes, " bytes, not ", bytes.size,
                         "; restore into a table with the same filter");
}

Status EmbeddingTable::RestoreBloom(Span<const char> bytes) {
  FE_RETURN_IF_ERROR(CheckBloom(bytes));
  Span<const char> rest = bytes;
  return ForEachShard(shards_, [&](TableShard* shard) {
    const int64_t shard_bytes = shard->bloom_bytes().size;
    const Span<const char> counters{rest.data, shard_bytes};
    rest = {rest.data + shard_bytes, rest.size - shard_bytes};
    return shard_bytes == 0 ? Status() : shard->RestoreBloom(counters);
  });
}

Status EmbeddingTable::CopyBloomOfShard(int64_t shard, std::vector<char>* bytes) const {
  return WithoutExceptions([&] {
    const TableShard& source = *shards_[static_cast<size_t>(shard)];
    const std::lock_guard<std::mutex> lock(source.mutex());
    const Span<const char> counters = source.bloom_bytes();
    bytes->assign(counters.begin(), counters.end());
    return Status();
  });
}

Status EmbeddingTable::MergeBloomOfShard(int64_t shard, int64_t begin, Span<const char> counters) {
  TableShard* target = shards_[static_cast<size_t>(shard)].get();
  const std::lock_guard<std::mutex> lock(target->mutex());
  return target->MergeBloom(begin, counters);
}

}  // namespace fused_embedding
