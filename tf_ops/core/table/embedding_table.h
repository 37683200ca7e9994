// A table of embedding rows by 64-bit key that grows without a vocabulary. Every int64 is a key.
//
// The high bits of a keyed hash select one of S shards. A shard has an index, rows in slabs, and
// one lock that a batch takes once. Lookups and updates of many threads run at the same time. Each
// batch is routed to the shards; small batches stay on the calling thread.
//
// A handle, `shard << 32 | row`, identifies a row as long as it lives; -1 is no row. A stale
// handle, of a row that was erased or evicted, is detected, because a row holds its key.

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
#include "tf_ops/core/table/expiry.h"
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
  int64_t step = -1;           // version of rows found or made; < 0: the table's own counter
  Span<const char* const> first_values = {};  // [n] values of new rows; empty: the initializer's
  int64_t min_frequency = -1;  // instead of that of the admission filter; < 0: the filter's
};

struct LookupOutput {
  char* values = nullptr;          // [n, dim]; FindOrInsert: or null
  int64_t* handles = nullptr;      // [n] or null
  int64_t* frequencies = nullptr;  // [n] or null: FindOrInsert's, occurrences with or without a row
  int64_t num_refused = 0;
};

// Rows of one shard, which the caller may read and write. The shard's lock is held.
struct RowBatch {
  char* const* rows;         // [n] start of each row; null: the key has none
  const int64_t* positions;  // [n] of each in the input
  int64_t n;
};

// The keys that a CounterFilter has not admitted, with their counts.
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
  std::vector<int64_t> removed;  // keys that lost row and count; some may be in the above again
  std::vector<BloomLine> bloom_lines;
};

class EmbeddingTable {
 public:
  // For operations on several tables: the number of keys that is worth all threads, and the time of
  // one key.
  static constexpr int64_t kManyKeys = 8192;
  static constexpr int64_t kKeyNs = 50;

  // InvalidArgument for a config that makes no sense.
  static Status Create(const TableConfig& config, std::unique_ptr<EmbeddingTable>* table);
  ~EmbeddingTable();
  EmbeddingTable(const EmbeddingTable&) = delete;
  EmbeddingTable& operator=(const EmbeddingTable&) = delete;

  const TableConfig& config() const { return config_; }
  // The initializer of new rows: the config's, or that of the restored checkpoint.
  InitializerConfig initializer() const;
  // InvalidArgument if CheckInitializer says so.
  Status SetInitializer(const InitializerConfig& initializer);

  // --- Stage 4 ---
  // Training: counts the keys, admits and inserts them, updates versions. A key may occur twice;
  // its occurrences are counted one after the other.
  Status FindOrInsert(const CpuExec& exec, const LookupInput& in, LookupOutput* out);
  // Evaluation: changes nothing. A key without a row reads its first value, or no_permission_value
  // if the table has an admission filter.
  Status Find(const CpuExec& exec, const LookupInput& in, LookupOutput* out);

  // With a cold store, promotes the rows of `keys` to DRAM, so that the next lookup does not wait
  // for them. Changes nothing else.
  Status Prefetch(const CpuExec& exec, Span<const int64_t> keys);

  // --- Stage 7 ---
  // Adds the slots that the table does not have yet, and sets them to their initial values in every
  // row. Handles stay valid. InvalidArgument if the table has a slot of that name with another
  // width.
  Status EnsureSlots(Span<const Slot> slots);
  // InvalidArgument if EnsureSlots would return it.
  Status CheckSlots(Span<const Slot> slots) const;
  // Byte offset of a slot in a row, or -1.
  int64_t SlotOffset(const std::string& name) const;
  RowLayout layout() const;
  // Calls `body` with the rows of `keys`, up to 128 rows of one shard at a time, under the shard's
  // lock; shards in parallel. The rows are being prefetched into the CPU's cache. If the handle of
  // a key in `handles` (empty: none are known) is still that key's row, it is used; otherwise the
  // row is searched for by key. `body` must be safe to run on different shards at once, gets the
  // layout that the rows have at that moment, and must not call the table.
  using RowBody = std::function<void(const RowLayout& layout, const RowBatch& batch)>;
  Status ForEachRow(const CpuExec& exec, Span<const int64_t> keys, Span<const int64_t> handles,
                    const RowBody& body);
  // The table's own step counter, for calls that pass no global step.
  int64_t step() const { return step_.load(); }
  void set_step(int64_t step) { step_.store(step); }
  void AdvanceStep() { step_.fetch_add(1); }

  // --- Content ---
  // Sets rows whether admitted or not, and inserts missing ones (external embeddings, restores).
  // Fields that are not given do not change; in a new row they are frequency 0, version `step()`
  // and the initial slots. `slots` is [n, slot_width] numbers, for the first of layout().slots; an
  // optimizer may have added further slots meanwhile, which do not change. Keys that a full table
  // refuses are an error, or omitted with the other check modes.
  struct Content {
    Span<const int64_t> keys;      // [n]; if a key occurs twice, its last row is used
    const char* values = nullptr;  // [n, dim]
    const char* slots = nullptr;
    Span<const int64_t> frequencies;
    Span<const int64_t> versions;
    int64_t slot_width = 0;
  };
  Status Upsert(const CpuExec& exec, const Content& content);
  // Sets `num_erased` to the number of rows erased. Also removes the counts of keys not admitted.
  Status Erase(const CpuExec& exec, Span<const int64_t> keys, int64_t* num_erased);
  // Removes rows not used for more than `steps_to_live` steps (<= 0: off), and rows whose value has
  // an L2 norm below `l2_threshold` (<= 0: off). Also removes the counts of keys not admitted, by
  // steps.
  Status Expire(const CpuExec& exec, const Expiry& in, int64_t* num_expired);
  // Resets the table: no rows, counts or slots, step 0. Counters of statistics are kept. Fails only
  // if a new cold store cannot be made; nothing has changed then.
  Status Clear();
  // Frequency and version of each key; 0 and -1 for a key without a row. Changes nothing.
  Status Metadata(const CpuExec& exec, Span<const int64_t> keys, Span<int64_t> frequencies,
                  Span<int64_t> versions);

  int64_t size() const;
  TableStatistics Statistics() const;

  // --- Snapshots ---
  // A shard is copied under its lock: its rows and slots are of one moment. Training continues in
  // the other shards.
  int64_t num_shards() const { return static_cast<int64_t>(shards_.size()); }
  // Appends all rows of the shard, `layout->row_bytes()` each, and its keys not admitted. Appends
  // no rows if the table has a cold store: use CopyCold.
  Status CopyShard(int64_t shard, RowLayout* layout, std::vector<char>* rows,
                   FilteredKeys* filtered) const;
  // Calls `visit` with the rows of a table with a cold store, in batches, by ascending keys. It
  // must not call the table.
  Status CopyCold(const VisitRowBytes& visit) const;
  // Makes a checkpoint of the cold store with all rows, and sets `*layout` to their layout.
  Status CheckpointCold(const std::string& path, RowLayout* layout) const;
  // Replaces all rows of a table with a cold store by those of a checkpoint that CheckpointCold
  // made. The rows of the checkpoint have `slots`, and each shard has `num_rows` of them. After an
  // error the table has not changed.
  Status AdoptCold(const std::string& checkpoint, Span<const Slot> slots,
                   Span<const int64_t> num_rows);
  int64_t ShardOf(int64_t key) const;
  // --- Changes ---
  // StartChanges begins a series of saves: from then on the table tracks what changes. The caller
  // copies the content of the save `save` after this call. A save that continues the series calls
  // ContinueChanges with the name of the save that it continues, CopyChanges for each shard, and,
  // once it is written, FinishChanges with its own name. Only the last save and the save that it
  // continues can be continued; the latter because the last save may have failed later. Names are
  // not 0. LockSaves allows one save at a time.
  std::unique_lock<std::mutex> LockSaves() { return std::unique_lock<std::mutex>(saves_mutex_); }
  void StartChanges(uint64_t save);
  // FailedPrecondition if the table has no changes since that save, because another series was
  // started, or the table was restored or cleared.
  Status ContinueChanges(uint64_t save);
  Status CopyChanges(int64_t shard, ShardCopy* copy);
  void FinishChanges(uint64_t save);

  Status RestoreFiltered(const FilteredKeys& filtered);
  // The counters of the Bloom filter, shard after shard; empty without a filter.
  Status CopyBloom(std::vector<char>* bytes) const;
  // InvalidArgument, without a change, if the number of bytes is not BloomBytes().
  Status RestoreBloom(Span<const char> bytes);
  Status CheckBloom(Span<const char> bytes) const;
  int64_t BloomBytes() const;
  // CopyBloom of one shard, for callers that cannot hold the counters of all shards.
  Status CopyBloomOfShard(int64_t shard, std::vector<char>* bytes) const;
  // Sets each of the shard's counters, from byte `begin` on, to the greater of itself and that in
  // `counters`.
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
  Status ExpireCold(const Expiry& in, int64_t* num_expired);
  template <typename Body>
  Status RunWhole(const BatchRouting& routing, const Occurrences* occurrences, const Body& body);

  TableConfig config_;
  uint64_t hash_key_;
  int shard_bits_ = 0;  // log2 of the shards
  std::vector<std::unique_ptr<TableShard>> shards_;
  std::unique_ptr<ColdTier> tier_;  // null: all rows are in DRAM
  std::atomic<int64_t> step_{0};
  std::mutex saves_mutex_;    // LockSaves
  mutable std::mutex mutex_;  // guards the members below
  RowLayout layout_;
  bool has_all_slots_ = true;  // in all shards; false after memory ran out in EnsureSlots
  std::shared_ptr<const InitializerConfig> initializer_;
  uint64_t known_save_ = 0;  // the save since which changes are tracked; 0: none
  uint64_t last_save_ = 0;   // the save that continues known_save_, or 0
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_EMBEDDING_TABLE_H_
