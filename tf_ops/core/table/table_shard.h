#ifndef FUSED_EMBEDDING_CORE_TABLE_TABLE_SHARD_H_
#define FUSED_EMBEDDING_CORE_TABLE_TABLE_SHARD_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
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

// The keys of a batch that belong to one shard. A lookup leaves only those that it has missed.
struct ShardKeys {
  const int64_t* keys;  // of the whole batch
  int64_t* positions;   // [n] in the batch, ascending
  uint64_t* hashes;     // [n]
  int64_t n;

  ShardKeys Part(int64_t begin, int64_t end) const {
    return {keys, positions + begin, hashes + begin, end - begin};
  }
};

// Up to kGroup of them from `begin` on, which are worked on together.
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
  double max_load = 0.8;       // of the index; differs, so that not all shards grow at once
  int64_t max_capacity = -1;   // rows; < 0: unbounded
  int64_t bloom_counters = 0;  // kBloom
};

// What lookups of the training add to a row.
struct Occurrences {
  Span<const int32_t> counts;  // by position in the batch; empty: one each
  uint32_t version = 0;

  int64_t count(int64_t position) const { return counts.empty() ? 1 : counts[position]; }
};

// As a row keeps them.
inline uint32_t SaturatedFrequency(int64_t frequency) {
  constexpr int64_t kMaxFrequency = std::numeric_limits<uint32_t>::max();
  return static_cast<uint32_t>(std::min(frequency, kMaxFrequency));
}
inline uint32_t SaturatedVersion(int64_t step) {
  const int64_t max_version = int64_t{kDeadVersion} - 1;
  return static_cast<uint32_t>(step < 0 ? 0 : step < max_version ? step : max_version);
}

// What a new row holds behind its value: slots.
std::vector<char> BytesBehindValue(const RowLayout& layout);

bool IsExpired(const RowLayout& layout, const char* row, const EmbeddingTable::ExpireInput& in);

// A part of an EmbeddingTable, by hash. All methods want mutex() to be held. The methods have the
// meaning of the table's, and may throw std::bad_alloc.
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
  // `version` of new rows that are given none. Counts the keys that a full table could not take.
  Status Upsert(const ShardKeys& keys, const EmbeddingTable::Content& content, uint32_t version,
                int64_t* num_refused);
  int64_t Erase(const ShardKeys& keys);
  int64_t Expire(const EmbeddingTable::ExpireInput& in);
  // Of these keys alone, which have rows here.
  int64_t ExpireKeys(const ShardKeys& keys, const EmbeddingTable::ExpireInput& in);
  void Clear();
  Status AddSlots(const std::vector<Slot>& slots);

  // The number of distinct keys that a FindOrInsert (an Upsert without `occurrences`) would refuse.
  // Changes nothing but the statistics.
  int64_t CountRefusals(const ShardKeys& keys, const Occurrences* occurrences);

  // Where a cold store is below, all rows are copied from there, and none here.
  size_t rows_bytes() const {
    return tier_ != nullptr ? 0 : static_cast<size_t>(rows_.size() * layout_.row_bytes());
  }
  // To `begin` of `rows`, which end behind them then.
  void CopyRows(RowLayout* layout, size_t begin, std::vector<char>* rows) const;
  void CopyFiltered(FilteredKeys* filtered) const;
  void StartChanges();
  void ForgetCollected();
  // False where the changes are not known: nothing is copied then.
  bool CopyChanges(ShardCopy* copy);
  Status RestoreFiltered(const ShardKeys& keys, const FilteredKeys& filtered);
  Span<const char> bloom_bytes() const;
  Status RestoreBloom(Span<const char> bytes) { return bloom_.Restore(bytes); }
  Status MergeBloom(int64_t begin, Span<const char> counters) {
    return bloom_.Merge(begin, counters);
  }

  // --- A cold store below (table_shard_tier.cc; ColdTier calls these) ---
  Status AddTier(CacheStrategy strategy, std::atomic<int64_t>* num_leaving);
  void SetMaxRows(int64_t max_rows);
  // Those of `keys` that have a row in DRAM come first then; returns their number.
  int64_t SplitResident(const ShardKeys& keys, RowUse use);
  // Of keys without a row in DRAM: those on their way to the store come back. Others are claimed
  // for `owner`, and told, unless a batch has done so already. The store is to be asked for those
  // that are `wanted`; the others have no row. Returns whether another owner has claimed some.
  bool Claim(const ShardKeys& keys, const void* owner, std::vector<int64_t>* wanted,
             std::vector<int64_t>* claimed);
  // Takes a row, what is behind its key, from the store.
  Status Land(int64_t key, const char* bytes, RowUse use);
  // Those of `keys` that have a row in DRAM, or none anywhere by the claims of `owner`, come first
  // then; returns their number.
  int64_t SplitSettled(const ShardKeys& keys, const void* owner);
  void Release(Span<const int64_t> claimed);
  // Rows leave, as long as there are too many.
  void Trim();
  // What waits is being written from then on, unless a write that failed comes first.
  void TakeLeaving();
  // So are up to `max_rows` rows in DRAM that the store lacks, of those from number `begin` on;
  // returns the number after them. They stay. Right after TakeLeaving: nothing may wait.
  int64_t TakeDirty(int64_t begin, int64_t max_rows);
  int64_t num_row_numbers() const { return rows_.slab().num_rows(); }
  // What is being written, as long as ForgetWritten is not called.
  void GetWriting(std::vector<const char*>* rows, std::vector<int64_t>* erased) const;
  void ForgetWritten();
  void SetNumCold(int64_t num_rows) { tier_->num_cold = num_rows; }
  // Goes on without rows in DRAM, which are all in the store, and have that layout there. `new_row`
  // is BytesBehindValue(layout).
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
  bool IsAdmitted(int64_t frequency) const;
  uint32_t InsertIfAdmitted(const Arrival& arrival, uint32_t filtered, int64_t num_left);
  uint32_t InsertRow(int64_t key, uint64_t hash, uint32_t frequency, uint32_t version);
  Status ReserveFor(int64_t num_keys);
  bool MakeRoom(int64_t num_left);
  static void Touch(char* row, int64_t count, uint32_t version);
  void Output(const ShardKeyGroup& group, int64_t i, LookupOutput* out) const;
  void WriteContent(char* row, int64_t position, const EmbeddingTable::Content& content);
  int64_t CountAdmitted(std::vector<std::pair<int64_t, int64_t>> keys);

  const TableConfig& table_;
  ShardConfig config_;
  mutable std::mutex mutex_;
  std::shared_ptr<const InitializerConfig> initializer_;
  RowLayout layout_;
  int64_t value_bytes_;
  std::vector<char> new_row_;        // BytesBehindValue
  std::vector<char> no_permission_;  // [dim] values
  KeyedRows rows_;
  KeyedRows filtered_;  // kCounter: headers of the keys that are not admitted
  CountingBloomFilter bloom_;
  EvictionQueue evictions_;
  TableStatistics statistics_;
  std::unique_ptr<ShardTier> tier_;  // null: all rows are in DRAM
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TABLE_SHARD_H_
