#ifndef FUSED_EMBEDDING_CORE_TABLE_TABLE_SHARD_H_
#define FUSED_EMBEDDING_CORE_TABLE_TABLE_SHARD_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/admission.h"
#include "tf_ops/core/table/embedding_table.h"
#include "tf_ops/core/table/eviction_queue.h"
#include "tf_ops/core/table/keyed_rows.h"
#include "tf_ops/core/table/row_layout.h"
#include "tf_ops/core/table/tier/shard_tier.h"

namespace fused_embedding {

// The keys of a batch that belong to one shard. After a lookup, only its misses.
struct ShardKeys {
  const int64_t* keys;  // of the whole batch
  int64_t* positions;   // [n] in the batch, ascending
  uint64_t* hashes;     // [n]
  int64_t n;

  ShardKeys Part(int64_t begin, int64_t end) const {
    return {keys, positions + begin, hashes + begin, end - begin};
  }
};

// Up to kGroup of these keys from `begin` on, which are processed together.
struct ShardKeyGroup : KeyGroup {
  ShardKeyGroup(const ShardKeys& shard_keys, int64_t begin)
      : positions(shard_keys.positions + begin) {
    n = std::min(kGroup, shard_keys.n - begin);
    hashes = shard_keys.hashes + begin;
    num_next = std::min(n, shard_keys.n - begin - n);
    is_first = begin == 0;
    for (int64_t i = 0; i < n; ++i) keys[i] = shard_keys.keys[positions[i]];
  }

  const int64_t* positions;
};

// How one shard differs from the others of its table.
struct ShardConfig {
  int64_t number = 0;
  uint64_t hash_key = 0;
  double max_load = 0.8;       // of the index; differs between shards, so that not all grow at once
  int64_t max_capacity = -1;   // rows; < 0: unbounded
  int64_t bloom_counters = 0;  // kBloom
};

// What a training lookup adds to the rows that it finds.
struct Occurrences {
  Span<const int32_t> counts;  // by position in the batch; empty: one each
  uint32_t version = 0;
  Span<const char* const> first_values = {};  // by position; empty: the initializer's
  int64_t min_frequency = -1;                 // < 0: the admission filter's

  int64_t count(int64_t position) const { return counts.empty() ? 1 : counts[position]; }
};

bool IsExpired(const RowLayout& layout, const char* row, const Expiry& in);

// One shard of an EmbeddingTable: the keys whose hashes select it. The caller of any method must
// hold mutex(). Methods with the name of a table's method do the same for the shard's keys. They
// may throw std::bad_alloc.
class TableShard {
 public:
  TableShard(const TableConfig& table, const ShardConfig& config);
  Status Init();

  int64_t number() const { return config_.number; }
  std::mutex& mutex() const { return mutex_; }
  const RowLayout& layout() const { return layout_; }
  int64_t size() const { return rows_.size() + (tier_ == nullptr ? 0 : tier_->num_cold); }
  int64_t max_capacity() const { return config_.max_capacity; }
  TableStatistics Statistics() const;
  void set_initializer(std::shared_ptr<const InitializerConfig> initializer) {
    initializer_ = std::move(initializer);
  }

  Status FindOrInsert(const ShardKeys& keys, const Occurrences& occurrences, LookupOutput* out);
  void Find(const ShardKeys& keys, LookupOutput* out);
  // `is_changing`: `body` may write the rows.
  void ForEachRow(const ShardKeys& keys, Span<const int64_t> handles, bool is_changing,
                  const EmbeddingTable::RowBody& body);
  // `version` is that of new rows if `content` has none. Adds the keys that a full table refused to
  // `*num_refused`.
  Status Upsert(const ShardKeys& keys, const EmbeddingTable::Content& content, uint32_t version,
                int64_t* num_refused);
  int64_t Erase(const ShardKeys& keys);
  int64_t Expire(const Expiry& in);
  // Expires only rows of these keys, all of which have rows in DRAM.
  int64_t ExpireKeys(const ShardKeys& keys, const Expiry& in);
  void Clear();
  Status AddSlots(const std::vector<Slot>& slots);

  // The number of distinct keys that a FindOrInsert (an Upsert without `occurrences`) would refuse.
  // Changes nothing but the statistics.
  int64_t CountRefusals(const ShardKeys& keys, const Occurrences* occurrences);

  // Bytes that CopyRows needs. 0 with a cold store: all rows are then copied from the store.
  size_t rows_bytes() const {
    return tier_ != nullptr ? 0 : static_cast<size_t>(rows_.size() * layout_.row_bytes());
  }
  // Copies all rows to position `begin` of `rows`, and resizes `rows` to end after them.
  void CopyRows(RowLayout* layout, size_t begin, std::vector<char>* rows) const;
  void CopyFiltered(FilteredKeys* filtered) const;
  void StartChanges();
  void ForgetCollected();
  // Returns false, and copies nothing, if the changes are not known.
  bool CopyChanges(ShardCopy* copy);
  Status RestoreFiltered(const ShardKeys& keys, const FilteredKeys& filtered);
  Span<const char> bloom_bytes() const;
  Status RestoreBloom(Span<const char> bytes) { return bloom_.Restore(bytes); }
  Status MergeBloom(int64_t begin, Span<const char> counters) {
    return bloom_.Merge(begin, counters);
  }

  // --- With a cold store (table_shard_tier.cc; ColdTier calls these) ---
  Status AddTier(CacheStrategy strategy, std::atomic<int64_t>* num_leaving);
  void SetMaxRows(int64_t max_rows);
  // Moves the keys that have a row in DRAM to the front of `keys`; returns their number.
  int64_t SplitResident(const ShardKeys& keys, RowUse use);
  // Handles the keys without a row in DRAM. A key whose write-back is pending or in flight gets its
  // row in DRAM again. Other keys are reserved for `owner` and appended to `claimed`, unless they
  // are reserved already. Of these, `wanted` gets the keys that must be read from the store; the
  // others have no row. Returns whether another owner has reserved some of the keys.
  bool Claim(const ShardKeys& keys, const void* owner, std::vector<int64_t>* wanted,
             std::vector<int64_t>* claimed);
  // Inserts a row that was read from the store; `bytes` is the row without its key.
  Status Land(int64_t key, const char* bytes, RowUse use);
  // Moves the keys that are ready for the operation to the front of `keys`; returns their number. A
  // key is ready if it has a row in DRAM, or if `owner` has reserved it and found no row anywhere.
  int64_t SplitSettled(const ShardKeys& keys, const void* owner);
  void Release(Span<const int64_t> claimed);
  // Demotes rows until DRAM has at most the shard's maximum.
  void Trim();
  // Moves the pending rows to the write in flight, unless that still has the rows of a failed
  // write.
  void TakeLeaving();
  // Copies up to `max_rows` dirty rows to the write in flight, from row number `begin` on; returns
  // the row number after them. The rows stay in DRAM. Call it right after TakeLeaving, while no row
  // is pending.
  int64_t TakeDirty(int64_t begin, int64_t max_rows);
  int64_t num_row_numbers() const { return rows_.slab().num_rows(); }
  // The rows and keys of the write in flight. The pointers are valid until ForgetWritten.
  void GetWriting(std::vector<const char*>* rows, std::vector<int64_t>* erased) const;
  void ForgetWritten();
  void SetNumCold(int64_t num_rows) { tier_->num_cold = num_rows; }
  // Removes all rows from DRAM. The caller has written all of them to the store, in `layout`.
  // `new_row` is BytesBehindValue(layout).
  void ForgetResident(RowLayout layout, std::vector<char> new_row);

 private:
  struct Arrival;

  template <typename IsFirst>
  int64_t Partition(const ShardKeys& keys, const IsFirst& is_first);
  void ComeBack(int64_t key, uint64_t hash, const char* row);
  void EraseRow(uint32_t number);
  bool is_bounded() const { return config_.max_capacity >= 0; }
  void FindByHandles(Span<const int64_t> handles, ShardKeyGroup* group);
  Status InsertMissing(const ShardKeys& missing, const Occurrences& occurrences, LookupOutput* out);
  template <typename Found>
  int64_t FindAll(const ShardKeys& keys, int64_t row_bytes, const Found& found);
  int64_t CountArrival(const Arrival& arrival, uint32_t* filtered);
  bool IsAdmitted(int64_t frequency, int64_t min_frequency) const;
  uint32_t InsertIfAdmitted(const Arrival& arrival, uint32_t filtered, int64_t num_left,
                            int64_t* occurrences);
  uint32_t InsertRow(int64_t key, uint64_t hash, uint32_t frequency, uint32_t version);
  Status ReserveFor(int64_t num_keys);
  bool MakeRoom(int64_t num_left);
  static void Touch(char* row, int64_t count, uint32_t version);
  void Output(const ShardKeyGroup& group, int64_t i, LookupOutput* out) const;
  void PrefetchMissing(const ShardKeyGroup& group, const LookupOutput& out) const;
  void OutputMissing(const ShardKeyGroup& group, const int64_t* frequencies,
                     LookupOutput* out) const;
  void OutputNothing(bool is_refused, char* value) const;
  void WriteContent(char* row, int64_t position, const EmbeddingTable::Content& content);
  int64_t CountAdmitted(std::vector<std::pair<int64_t, int64_t>> keys, int64_t min_frequency);

  const TableConfig& table_;
  ShardConfig config_;
  mutable std::mutex mutex_;
  std::shared_ptr<const InitializerConfig> initializer_;
  RowLayout layout_;
  int64_t value_bytes_;
  std::vector<char> new_row_;        // BytesBehindValue
  std::vector<char> no_permission_;  // [dim] values
  KeyedRows rows_;
  KeyedRows filtered_;  // kCounter: headers of keys that are not admitted
  CountingBloomFilter bloom_;
  EvictionQueue evictions_;
  TableStatistics statistics_;
  std::unique_ptr<ShardTier> tier_;  // null: all rows are in DRAM
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TABLE_SHARD_H_
