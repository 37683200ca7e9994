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

// The cold store below a table's rows in DRAM, and the promotion and demotion of rows.
//
// Promotion: the misses of a batch are reserved ("claimed") in their shards, read from the store in
// one sorted batch without a lock, inserted into DRAM, used, and released. A batch waits for keys
// that another batch has reserved only while it has reserved none itself. It never waits for other
// threads while it holds reserved keys, because those threads may be waiting for them.
//
// Demotion: a shard that has more rows than its part of DRAM demotes some. Rows that the store
// already has are dropped. The others are pending in their shard, where lookups still find them,
// until the tier's writer thread writes all pending rows to the store in one sorted batch.
//
// If a write fails, its rows remain pending. Batches continue while there is room for more pending
// rows. After that they retry the write and return its error.
class ColdTier {
 public:
  using ShardBody = std::function<Status(TableShard* shard, const ShardKeys& keys)>;

  // InvalidArgument for a config that makes no sense, else errors of the store. `shards` outlive
  // the tier.
  static Status Create(const StorageConfig& config, const RowLayout& layout, const Shards& shards,
                       std::unique_ptr<ColdTier>* tier);
  // Pending rows are lost, like everything that is not in a checkpoint.
  ~ColdTier();
  ColdTier(const ColdTier&) = delete;
  ColdTier& operator=(const ColdTier&) = delete;

  // Every operation on the table holds this shared lock, so that the layout does not change.
  std::shared_lock<std::shared_mutex> Share() { return std::shared_lock(use_mutex_); }
  // Waits until there is room for more pending rows, or returns the error of the write that failed.
  Status WaitForRoom();
  // Fetches `missing` into DRAM and calls body(shard, keys) under the shard's lock. A key without a
  // row in DRAM then has none in the store either. A shard's keys may be split over several calls;
  // each key is passed once.
  Status RunMissing(MissingKeys* missing, RowUse use, const ShardBody& body);

  // Visits all rows in batches of ascending keys, each row as of the call or newer.
  Status Scan(const VisitRowBytes& visit);
  // Writes all rows to the store, each as of the call or newer, and makes a checkpoint of it. Sets
  // `*layout` to the layout of its rows.
  Status Checkpoint(const std::string& path, RowLayout* layout);
  // Replaces the content of the shards by a checkpoint with rows of `layout`; `num_rows` is their
  // number per shard. After an error nothing has changed.
  Status Adopt(const std::string& checkpoint, const RowLayout& layout,
               Span<const int64_t> num_rows);
  // Adds slots to all rows: the slots of `layout` start with the present ones. After an error
  // nothing has changed.
  Status SetLayout(const RowLayout& layout);
  // Removes all rows, and continues with `layout`, which has no slots. After an error nothing has
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
  const int64_t read_bytes_, write_bytes_;  // bytes of rows per read batch and per write batch

  std::shared_mutex use_mutex_;  // held exclusively while the layout changes
  int64_t num_opened_ = 0;
  RowLayout layout_;
  std::atomic<int64_t> row_bytes_{0};
  std::unique_ptr<ColdStore> store_;
  TableStatistics of_earlier_stores_;
  std::atomic<int64_t> num_leaving_{0};

  std::mutex write_mutex_;    // held during a write: one at a time
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable released_, work_, written_;
  uint64_t num_releases_ = 0;
  uint64_t num_writes_begun_ = 0;  // attempts, failed ones included
  uint64_t num_writes_ = 0;        // those that ended
  Status write_status_;            // of the last one
  bool is_write_wanted_ = false;
  bool is_stopping_ = false;
  std::thread writer_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TIER_COLD_TIER_H_
