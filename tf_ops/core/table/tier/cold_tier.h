#ifndef FUSED_EMBEDDING_CORE_TABLE_TIER_COLD_TIER_H_
#define FUSED_EMBEDDING_CORE_TABLE_TIER_COLD_TIER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/storage/cold_store.h"
#include "tf_ops/core/table/shard_loops.h"
#include "tf_ops/core/table/table_config.h"
#include "tf_ops/core/table/table_shard.h"
#include "tf_ops/core/table/tier/stored_rows.h"

namespace fused_embedding {

// The keys of a batch that have no row in DRAM, by shard.
struct MissingKeys {
  ShardKeys of_shard[kMaxShards] = {};

  bool empty() const {
    for (const ShardKeys& keys : of_shard) {
      if (keys.n > 0) return false;
    }
    return true;
  }
};

// The cold store below the rows of a table in DRAM, and the way of rows between them.
//
// A row comes: the keys of a batch that have none in DRAM are claimed in their shards, read from
// the store in one sorted batch without a lock, put into DRAM, worked on, and released. A batch
// waits for the claims of others only while it has none itself. Between that it holds none while it
// waits for other threads, because these may be waiting for its claims.
//
// A row goes: where a shard has more rows than its part of DRAM, some leave. Those that the store
// lacks wait in their shard, where they are still found, until a thread of the tier has put all of
// them into the store in one sorted batch; the others are simply dropped.
//
// An error of a write stays with the rows, which wait on. Batches go on while there is room for
// more of them; then they try the write again, and give its error.
class ColdTier {
 public:
  using ShardBody = std::function<Status(TableShard* shard, const ShardKeys& keys)>;

  // InvalidArgument for a config that makes no sense, else errors of the store. `shards` outlive
  // the tier.
  static Status Create(const StorageConfig& config, const RowLayout& layout, const Shards& shards,
                       std::unique_ptr<ColdTier>* tier);
  // What waits is lost, as all that is not in a checkpoint.
  ~ColdTier();
  ColdTier(const ColdTier&) = delete;
  ColdTier& operator=(const ColdTier&) = delete;

  // Whoever works on the table holds this.
  std::shared_lock<std::shared_mutex> Share() { return std::shared_lock(use_mutex_); }
  // Waits until there is room for rows that leave, or gives the error why there is none.
  Status WaitForRoom();
  // Calls body(shard, keys) for all of `missing`, once each, in one or more calls a shard: with the
  // shard locked, and all rows of `keys` that there are anywhere in DRAM.
  Status RunMissing(MissingKeys* missing, RowUse use, const ShardBody& body);

  // All rows, in batches of ascending keys, the newest as of the call.
  Status Scan(const VisitRowBytes& visit);
  // Makes a checkpoint of a store with all rows, the newest as of the call, which are of `*layout`.
  Status Checkpoint(const std::string& path, RowLayout* layout);
  // Replaces the content of the shards by a checkpoint with rows of `layout`, so many of each
  // shard. On an error nothing has changed.
  Status Adopt(const std::string& checkpoint, const RowLayout& layout,
               Span<const int64_t> num_rows);
  // Gives all rows the slots of `layout`, which begin with those they have. On an error nothing has
  // changed.
  Status SetLayout(const RowLayout& layout);
  // Clears the shards, and goes on without rows in a layout without slots. On an error nothing has
  // changed.
  Status Clear(const RowLayout& layout);

  void AddStatistics(TableStatistics* statistics) const;

 private:
  class Fetch;

  ColdTier(const StorageConfig& config, const Shards& shards);
  Status OpenStore(const RowLayout& layout, const std::string& checkpoint,
                   std::unique_ptr<ColdStore>* store);
  void UseStore(RowLayout layout, std::unique_ptr<ColdStore> store);
  Status Widen(const RowLayout& layout, ColdStore* store);
  bool HasRoom() const { return num_leaving_ * row_bytes_ <= 4 * write_bytes_; }
  Status Land(Fetch* fetch, MissingKeys* missing, const ShardBody& body);
  void WriteLoop();
  Status WriteWaiting();
  Status Flush();
  Status Write(size_t begin_shard, size_t end_shard);

  const StorageConfig config_;
  const Shards& shards_;
  const int64_t read_bytes_, write_bytes_;  // of rows in a read and in a write

  std::shared_mutex use_mutex_;  // held alone by those who change the layout
  int64_t num_opened_ = 0;
  RowLayout layout_;
  std::atomic<int64_t> row_bytes_{0};
  std::unique_ptr<ColdStore> store_;
  TableStatistics of_earlier_stores_;
  std::atomic<int64_t> num_leaving_{0};

  std::mutex write_mutex_;    // one writes at a time
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable released_, work_, written_;
  uint64_t num_releases_ = 0;
  uint64_t num_writes_ = 0;  // that were tried
  Status write_status_;      // of the last
  bool is_write_wanted_ = false;
  bool is_stopping_ = false;
  std::thread writer_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TIER_COLD_TIER_H_
