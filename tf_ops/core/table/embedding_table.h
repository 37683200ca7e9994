// A table of embedding rows by 64-bit key that grows without a vocabulary. Every int64 is a key.
//
// S shards by high bits of a keyed hash; a shard has an index, rows in slabs, and one lock that a
// batch takes once. Lookups and updates of many threads run at once; each batch is routed to the
// shards, and small batches stay on the calling thread.
//
// A row is named by its handle, `shard << 32 | row`, or -1 for none, as long as it lives. A handle
// of a row that was erased or evicted is noticed, because a row holds its key.

#ifndef FUSED_EMBEDDING_CORE_TABLE_EMBEDDING_TABLE_H_
#define FUSED_EMBEDDING_CORE_TABLE_EMBEDDING_TABLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/admission.h"
#include "tf_ops/core/table/initializer.h"
#include "tf_ops/core/table/row_layout.h"
#include "tf_ops/core/table/table_config.h"
#include "tf_ops/core/table/table_statistics.h"
#include "tf_ops/core/table/tier/stored_rows.h"

namespace fused_embedding {

class BatchRouting;
class ColdTier;
class TableShard;
struct Occurrences;

struct LookupInput {
  Span<const int64_t> keys;    // [n] distinct
  Span<const int32_t> counts;  // [n] occurrences of each, >= 0; empty: one each
  int64_t step = -1;           // version of the rows found or made; < 0: the table's own counter
};

struct LookupOutput {
  char* values = nullptr;      // [n, dim]
  int64_t* handles = nullptr;  // [n] or null
  int64_t num_refused = 0;
};

// Rows of one shard that the caller may read and write, under the shard's lock.
struct RowBatch {
  char* const* rows;         // [n] start of each row; null: the key has none
  const int64_t* positions;  // [n] of each in the input
  int64_t n;
};

// The keys and counts that are not admitted, of a CounterFilter.
struct FilteredKeys {
  std::vector<int64_t> keys;
  std::vector<uint32_t> frequencies;
  std::vector<uint32_t> versions;

  void Add(const RowHeader& header) {
    keys.push_back(header.key);
    frequencies.push_back(header.frequency);
    versions.push_back(header.version);
  }
};

// What changed in a shard since a save.
struct ShardCopy {
  RowLayout layout;
  std::vector<char> rows;  // layout.row_bytes() each
  FilteredKeys filtered;
  std::vector<int64_t> removed;  // keys with neither, unless they are in one of those again
  std::vector<BloomLine> bloom_lines;
};

class EmbeddingTable {
 public:
  // For work on several tables: a batch of so many keys is worth all threads, and what one key
  // costs.
  static constexpr int64_t kManyKeys = 8192;
  static constexpr int64_t kKeyNs = 50;

  // InvalidArgument for a config that makes no sense.
  static Status Create(const TableConfig& config, std::unique_ptr<EmbeddingTable>* table);
  ~EmbeddingTable();
  EmbeddingTable(const EmbeddingTable&) = delete;
  EmbeddingTable& operator=(const EmbeddingTable&) = delete;

  const TableConfig& config() const { return config_; }
  // What new rows start with: of the config, or of the checkpoint that was restored.
  InitializerConfig initializer() const;
  // InvalidArgument if CheckInitializer says so.
  Status SetInitializer(const InitializerConfig& initializer);

  // --- Stage 4 ---
  // Training: counts the keys, admits and inserts, updates versions. Keys that occur twice are
  // legal and counted one after the other.
  Status FindOrInsert(const CpuExec& exec, const LookupInput& in, LookupOutput* out);
  // Evaluation: changes nothing. A key without a row reads its first value, or no_permission_value
  // where there is an admission filter.
  Status Find(const CpuExec& exec, const LookupInput& in, LookupOutput* out);

  // Where a cold store is below, brings the rows of `keys` to DRAM, so that a lookup that comes
  // soon need not wait for them. Changes nothing else.
  Status Prefetch(const CpuExec& exec, Span<const int64_t> keys);

  // --- Stage 7 ---
  // Adds the slots that the table does not have yet, and gives every row their initial values.
  // Handles stay valid. InvalidArgument if a slot is there with another width.
  Status EnsureSlots(Span<const Slot> slots);
  // InvalidArgument where EnsureSlots would say so.
  Status CheckSlots(Span<const Slot> slots) const;
  // Byte offset of a slot in a row, or -1.
  int64_t SlotOffset(const std::string& name) const;
  RowLayout layout() const;
  // Calls `body` with the rows of `keys`, up to 128 rows of one shard at a time, which are on their
  // way into the cache, under the shard's lock; shards in parallel.
  // A key's row is taken from `handles` (empty: none are known) where it is still that key's, and
  // probed for else. `body` must be safe to run on different shards at once, gets the layout that
  // the rows have at that moment, and must not call the table.
  using RowBody = std::function<void(const RowLayout& layout, const RowBatch& batch)>;
  Status ForEachRow(const CpuExec& exec, Span<const int64_t> keys, Span<const int64_t> handles,
                    const RowBody& body);
  // The table's own step counter, of tables that are given no global step.
  int64_t step() const { return step_.load(); }
  void set_step(int64_t step) { step_.store(step); }
  void AdvanceStep() { step_.fetch_add(1); }

  // --- Content ---
  // Sets rows whether admitted or not, and inserts those that are missing (external embeddings,
  // restores). What is not given stays as it is; a new row then has frequency 0, version `step()`,
  // initial slots. `slots` is [n, slot_width] numbers of the first of layout().slots; those behind
  // them, which an optimizer may have added meanwhile, are not given. Keys that a full table cannot
  // take are an error, or left out by the other check modes.
  struct Content {
    Span<const int64_t> keys;      // [n]; of one that occurs twice the last counts
    const char* values = nullptr;  // [n, dim]
    const char* slots = nullptr;
    Span<const int64_t> frequencies;
    Span<const int64_t> versions;
    int64_t slot_width = 0;
  };
  Status Upsert(const CpuExec& exec, const Content& content);
  // Number of rows erased in `num_erased`. Also forgets the counts of keys not admitted.
  Status Erase(const CpuExec& exec, Span<const int64_t> keys, int64_t* num_erased);
  // Rows not used for more than `steps_to_live` steps (<= 0: off), or whose value has an L2 norm
  // below `l2_threshold` (<= 0: off). Also expires counts of keys not admitted, by steps.
  struct ExpireInput {
    int64_t step = -1;  // now; < 0: the table's own counter
    int64_t steps_to_live = 0;
    double l2_threshold = 0.0;
  };
  Status Expire(const CpuExec& exec, const ExpireInput& in, int64_t* num_expired);
  // As new: no rows, counts or slots, step 0. Counted statistics stay. Fails only where a cold
  // store cannot be made anew; nothing has changed then.
  Status Clear();
  // Frequency and version of each key; 0 and -1 for a key without a row. Changes nothing.
  Status Metadata(const CpuExec& exec, Span<const int64_t> keys, Span<int64_t> frequencies,
                  Span<int64_t> versions);

  int64_t size() const;
  TableStatistics Statistics() const;

  // --- Snapshots ---
  // A shard is copied under its lock: rows and slots of one moment. Training goes on in the others.
  int64_t num_shards() const { return static_cast<int64_t>(shards_.size()); }
  // Appends all rows of the shard, `layout->row_bytes()` each, and its keys not admitted. Of a
  // table with a cold store no rows: CopyCold gives them.
  Status CopyShard(int64_t shard, RowLayout* layout, std::vector<char>* rows,
                   FilteredKeys* filtered) const;
  // Calls `visit` with the rows of a table with a cold store, in batches, by ascending keys. It
  // must not call the table.
  Status CopyCold(const VisitRowBytes& visit) const;
  // Makes a checkpoint of that store with all rows, which are of `*layout`.
  Status CheckpointCold(const std::string& path, RowLayout* layout) const;
  // Replaces all content, as Clear does, by the rows of such a checkpoint, so many of each shard,
  // which have these slots. Of a table with a cold store; nothing has changed on an error.
  Status AdoptCold(const std::string& checkpoint, Span<const Slot> slots,
                   Span<const int64_t> num_rows);
  int64_t ShardOf(int64_t key) const;
  // --- Changes ---
  // From StartChanges on, the table knows what changed since the save of that name, which is copied
  // after it. A save that continues it calls ContinueChanges with the name of the save it
  // continues, CopyChanges for each shard, and FinishChanges with its own name once it is written.
  // Only the last save and the one that it continues can be continued: the former may have failed
  // after all. Names are not 0. One save at a time holds the lock.
  std::unique_lock<std::mutex> LockSaves() { return std::unique_lock<std::mutex>(saves_mutex_); }
  void StartChanges(uint64_t save);
  // FailedPrecondition where the table knows nothing of that save: another one was started, or the
  // table was restored or cleared.
  Status ContinueChanges(uint64_t save);
  Status CopyChanges(int64_t shard, ShardCopy* copy);
  void FinishChanges(uint64_t save);

  Status RestoreFiltered(const FilteredKeys& filtered);
  // The counters of a Bloom filter, all shards one after the other; empty without one.
  Status CopyBloom(std::vector<char>* bytes) const;
  // InvalidArgument, and no change, for another number of bytes than BloomBytes().
  Status RestoreBloom(Span<const char> bytes);
  Status CheckBloom(Span<const char> bytes) const;
  int64_t BloomBytes() const;
  // The same of one shard, for those who cannot hold all of them.
  Status CopyBloomOfShard(int64_t shard, std::vector<char>* bytes) const;
  // The greater counters of both, from byte `begin` of the shard's on.
  Status MergeBloomOfShard(int64_t shard, int64_t begin, Span<const char> counters);

 private:
  explicit EmbeddingTable(const TableConfig& config);
  Status Init();
  void Forget(RowLayout layout);
  bool MayRefuse(const BatchRouting& routing) const;
  Status VisitRows(const CpuExec& exec, Span<const int64_t> keys, Span<const int64_t> handles,
                   bool is_changing, const RowBody& body);
  template <typename Body>
  Status RunOnShards(const CpuExec& exec, const BatchRouting& routing, RowUse use,
                     const Body& body);
  Status ExpireCold(const ExpireInput& in, int64_t* num_expired);
  template <typename Body>
  Status RunWhole(const BatchRouting& routing, const Occurrences* occurrences, const Body& body);

  TableConfig config_;
  uint64_t hash_key_;
  int shard_bits_ = 0;  // log2 of the shards
  std::vector<std::unique_ptr<TableShard>> shards_;
  std::unique_ptr<ColdTier> tier_;  // null: all rows are in DRAM
  std::atomic<int64_t> step_{0};
  std::mutex saves_mutex_;    // LockSaves
  mutable std::mutex mutex_;  // of what follows
  RowLayout layout_;
  bool has_all_slots_ = true;  // in all shards: not after memory ran out
  std::shared_ptr<const InitializerConfig> initializer_;
  uint64_t known_save_ = 0;  // that changes are known since; 0: none
  uint64_t last_save_ = 0;   // that continues it, or 0
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_EMBEDDING_TABLE_H_
