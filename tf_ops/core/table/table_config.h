#ifndef FUSED_EMBEDDING_CORE_TABLE_TABLE_CONFIG_H_
#define FUSED_EMBEDDING_CORE_TABLE_TABLE_CONFIG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/storage/cold_store.h"
#include "tf_ops/core/table/admission.h"
#include "tf_ops/core/table/initializer.h"
#include "tf_ops/core/table/row_layout.h"
#include "tf_ops/core/table/tier/cache_clock.h"

namespace fused_embedding {

constexpr int64_t kMaxShards = 256;
constexpr int64_t kMaxDim = int64_t{1} << 24;

// Which row a full table evicts: the one used longest ago, or least often (ties: longest ago).
enum class EvictionPolicy { kNone, kLru, kLfu };
// What a lookup does with keys that a full table refuses.
enum class CheckMode {
  kError,    // ResourceExhausted with their number; the batch does not change the table
  kWarning,  // they read zeros; the caller logs LookupOutput::num_refused
  kIgnore,   // they read zeros
};

// The cold store for rows that do not fit in DRAM.
struct StorageConfig {
  using Open = std::function<Status(const ColdStoreOptions&, std::unique_ptr<ColdStore>*)>;

  Open open;               // empty: all rows are in DRAM
  std::string path;        // of a folder that only this table uses
  int64_t dram_bytes = 0;  // limit for rows, their index, and the store's memory
  CacheStrategy strategy = CacheStrategy::kLfu;
};

struct TableConfig {
  RowLayout layout;  // without slots: optimizers add theirs
  InitializerConfig initializer;
  AdmissionConfig admission;
  double no_permission_value = 0.0;  // what a key that is not admitted reads
  int64_t max_capacity = 0;          // rows; 0: unbounded
  EvictionPolicy eviction = EvictionPolicy::kNone;
  CheckMode check_mode = CheckMode::kError;
  StorageConfig storage;
  int64_t num_shards = 0;  // a power of two up to 256; 0: 16, or fewer for a small max_capacity
};

// InvalidArgument for a config that makes no sense.
Status CheckTableConfig(const TableConfig& config);
// Finds those of `slots` that the layout lacks. InvalidArgument for a slot that it cannot have.
Status FindMissingSlots(const RowLayout& layout, Span<const Slot> slots,
                        std::vector<Slot>* missing);
// Whether a table refuses batches with more rows than it has room for.
bool RefusesRows(const TableConfig& config);
// Maximum number of rows of a shard, for a table with max_capacity.
int64_t CapacityOfShard(const TableConfig& config, int64_t shard);
// ResourceExhausted if the table refuses some of the rows of `what`, which has this number of rows
// for each shard.
Status CheckFits(const TableConfig& config, const std::string& what,
                 Span<const int64_t> num_rows_of_shard);
// How many rows a restore passes to Upsert at a time. Rows of a batch do not evict each other, so
// the batches for a table that evicts must fit into any shard.
int64_t RestoredAtOnce(const TableConfig& config);

// The number of shards of a table whose config has num_shards = 0.
int64_t DefaultShards(int64_t max_capacity);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TABLE_CONFIG_H_
