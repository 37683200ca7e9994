// What changed in a table since a save.

#include <new>

#include "tf_ops/core/table/embedding_table.h"
#include "tf_ops/core/table/table_shard.h"

namespace fused_embedding {

void EmbeddingTable::StartChanges(uint64_t save) {
  const std::lock_guard<std::mutex> lock(mutex_);
  known_save_ = save;
  last_save_ = 0;
  for (const std::unique_ptr<TableShard>& shard : shards_) {
    const std::lock_guard<std::mutex> shard_lock(shard->mutex());
    shard->StartChanges();
  }
}

Status EmbeddingTable::ContinueChanges(uint64_t save) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (save == 0 || (save != known_save_ && save != last_save_)) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "the table does not know what changed since the checkpoint to continue: "
                      "another series of incremental saves was begun since, or it was restored; "
                      "save all of it");
  }
  if (save == last_save_) {
    for (const std::unique_ptr<TableShard>& shard : shards_) {
      const std::lock_guard<std::mutex> shard_lock(shard->mutex());
      shard->ForgetCollected();
    }
  }
  known_save_ = save;
  last_save_ = 0;
  return Status();
}

Status EmbeddingTable::CopyChanges(int64_t shard, ShardCopy* copy) {
  TableShard* source = shards_[static_cast<size_t>(shard)].get();
  try {
    const std::lock_guard<std::mutex> lock(source->mutex());
    if (source->CopyChanges(copy)) return Status();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory is left to copy what changed in an embedding table");
  }
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "what changed in the table is not known any more: it was restored meanwhile, "
                    "or memory was short; save all of it");
}

void EmbeddingTable::FinishChanges(uint64_t save) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (known_save_ != 0) last_save_ = save;
}

}  // namespace fused_embedding
