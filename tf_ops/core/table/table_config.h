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

// Which row a full table gives up for good: the one used longest ago, or least often (ties: longest
// ago).
enum class EvictionPolicy { kNone, kLru, kLfu };
// What a lookup does with keys that a full table could not take.
enum class CheckMode {
  kError,    // ResourceExhausted with their number, the table unchanged by the batch
  kWarning,  // they read zeros; LookupOutput::num_refused is to be logged
  kIgnore,   // they read zeros
};

// Where rows are that DRAM has no room for.
struct StorageConfig {
  using Open = std::function<Status(const ColdStoreOptions&, std::unique_ptr<ColdStore>*)>;

  Open open;               // empty: all rows are in DRAM
  std::string path;        // of a folder for this table alone
  int64_t dram_bytes = 0;  // for rows, their index, and what the store holds in memory
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
// Those of `slots` that the layout lacks. InvalidArgument for one that it cannot have.
Status FindMissingSlots(const RowLayout& layout, Span<const Slot> slots,
                        std::vector<Slot>* missing);
// Whether a table refuses batches with more rows than it has room for.
bool RefusesRows(const TableConfig& config);
// Of a table with max_capacity.
int64_t CapacityOfShard(const TableConfig& config, int64_t shard);
// ResourceExhausted where the table refuses some of the rows that `what` has, so many of each
// shard.
Status CheckFits(const TableConfig& config, const std::string& what,
                 Span<const int64_t> num_rows_of_shard);
// How many rows to give to Upsert at a time when restoring. A batch is kept whole, so a table that
// evicts must be given batches that fit into any shard.
int64_t RestoredAtOnce(const TableConfig& config);

// The shards of a table whose config leaves their number open.
int64_t DefaultShards(int64_t max_capacity);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TABLE_CONFIG_H_
