#ifndef FUSED_EMBEDDING_CORE_TABLE_KEYED_ROWS_H_
#define FUSED_EMBEDDING_CORE_TABLE_KEYED_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/change_log.h"
#include "tf_ops/core/table/hash_index.h"
#include "tf_ops/core/table/row_slab.h"
#include "tf_ops/core/table/tier/cache_clock.h"

namespace fused_embedding {

// Number of keys that are searched for together, so that their memory accesses overlap.
constexpr int64_t kGroup = 128;

// Up to kGroup keys, and the rows found for them.
struct KeyGroup {
  int64_t n = 0;
  const uint64_t* hashes = nullptr;  // [n], followed by the hashes of the next group, [num_next]
  int64_t num_next = 0;
  bool is_first = true;  // no earlier group has prefetched the buckets of this one
  int64_t keys[kGroup];
  uint32_t numbers[kGroup];  // row numbers; kNoRow for a key without a row
  char* rows[kGroup];        // set for keys with a row
};

// Rows and the index of their keys. Not thread-safe.
class KeyedRows {
 public:
  // `hash_key` makes the hash specific to this table: keys that collide cannot be chosen without
  // knowing it.
  KeyedRows(uint64_t hash_key, double max_load, int64_t row_bytes)
      : hash_key_(hash_key), max_load_(max_load), slab_(row_bytes) {}
  Status Init() { return HashIndex::Create(0, max_load_, &index_); }

  uint64_t Hash(int64_t key) const { return Mix64(static_cast<uint64_t>(key) ^ hash_key_); }
  int64_t size() const { return slab_.size(); }
  int64_t memory_bytes() const {
    return slab_.memory_bytes() + index_.memory_bytes() + changes_.memory_bytes() +
           clock_.memory_bytes();
  }
  RowSlab& slab() { return slab_; }
  const RowSlab& slab() const { return slab_; }
  char* row(int64_t number) const { return slab_.row(number); }
  RowHeader* header(int64_t number) const { return slab_.header(number); }
  // Insert and Erase record their rows in both. Report any other change by Change.
  ChangeLog& changes() { return changes_; }
  const ChangeLog& changes() const { return changes_; }
  CacheClock& clock() { return clock_; }
  // Records that the bytes of a row changed.
  FE_INLINE void Change(int64_t row) {
    changes_.Change(row);
    clock_.Change(row);
  }

  // Whether row `number` is alive and has this key. Any number is legal.
  FE_INLINE bool IsRowOf(int64_t number, int64_t key) const {
    return number >= 0 && slab_.IsAlive(number) && slab_.header(number)->key == key;
  }
  FE_INLINE void Prefetch(uint64_t hash) const { index_.Prefetch(hash); }
  FE_INLINE uint32_t Find(int64_t key, uint64_t hash) const {
    return index_.Find(hash, [&](uint32_t row) { return slab_.header(row)->key == key; });
  }

  // Finds the rows of a group in three stages. Each stage prefetches the memory that the next one
  // reads, and the last stage prefetches for the first stage of the next group. `row_bytes` of each
  // row are prefetched.
  FE_INLINE void FindGroup(int64_t row_bytes, KeyGroup* group) const {
    const uint64_t* hashes = group->hashes;
    bool is_certain[kGroup];
    for (int64_t i = 0; group->is_first && i < group->n; ++i) index_.Prefetch(hashes[i]);
    for (int64_t i = 0; i < group->n; ++i) {
      uint32_t second;
      group->numbers[i] = index_.Candidate(hashes[i], &second, &is_certain[i]);
      if (group->numbers[i] == kNoRow) continue;
      group->rows[i] = row(group->numbers[i]);
      PrefetchRow(group->rows[i], row_bytes);
      if (second != kNoRow) PrefetchRow(row(second), row_bytes);  // it may be the key's
    }
    for (int64_t i = 0; i < group->n; ++i) {
      if (i < group->num_next) index_.Prefetch(hashes[group->n + i]);
      if (group->numbers[i] != kNoRow && KeyOf(group->rows[i]) == group->keys[i]) continue;
      group->numbers[i] = is_certain[i] ? kNoRow : Find(group->keys[i], hashes[i]);
      if (group->numbers[i] != kNoRow) group->rows[i] = row(group->numbers[i]);
    }
  }

  // Makes room for `num_rows` more rows, so that their Insert cannot fail.
  Status Reserve(int64_t num_rows) {
    FE_RETURN_IF_ERROR(slab_.Reserve(num_rows));
    changes_.Reserve(slab_.num_rows() + num_rows);
    clock_.Reserve(slab_.num_rows() + num_rows);
    return index_.size() + num_rows <= index_.capacity() ? Status()
                                                         : Reindex(index_.size() + num_rows);
  }
  // Adds a row for a key that has none, and returns its number. The caller writes the row's bytes
  // after the header.
  uint32_t Insert(int64_t key, uint64_t hash) {
    const uint32_t row = slab_.Add(key);
    index_.Insert(hash, row);
    changes_.Add(row);
    clock_.Add(row);
    return row;
  }
  void Erase(uint32_t row) {
    changes_.Remove(row, header(row)->key);
    clock_.Remove(row);
    index_.Erase(Hash(header(row)->key), row);
    slab_.Remove(row);
  }
  // Removes all rows, and sets the size of a row.
  void Clear(int64_t row_bytes) {
    if (!Init().ok()) index_.Clear();  // no memory for a small index: keep the large one
    slab_ = RowSlab(row_bytes);
    changes_.Stop();
    clock_.Clear();
  }

  // Calls body(row) in ascending order of row numbers. It may erase the row.
  template <typename Body>
  void ForEach(const Body& body) const {
    constexpr int64_t kAhead = 32;  // the hardware prefetcher stops at the end of a page
    for (int64_t row = 0; row < slab_.num_rows(); ++row) {
      if (row + kAhead < slab_.num_rows()) __builtin_prefetch(slab_.row(row + kAhead));
      if (slab_.IsAlive(row)) body(static_cast<uint32_t>(row));
    }
  }

 private:
  static int64_t KeyOf(const char* row) { return reinterpret_cast<const RowHeader*>(row)->key; }

  // Makes a larger index. Reads the rows in the order of memory.
  Status Reindex(int64_t num_entries) {
    HashIndex index;
    const int64_t doubled = 2 * index_.capacity();
    FE_RETURN_IF_ERROR(HashIndex::Create(std::max(num_entries, doubled), max_load_, &index));
    uint32_t rows[kGroup];
    uint64_t hashes[kGroup];
    int64_t n = 0;
    const auto insert = [&] {
      for (int64_t i = 0; i < n; ++i) index.Insert(hashes[i], rows[i]);
      n = 0;
    };
    ForEach([&](uint32_t row) {
      rows[n] = row;
      hashes[n] = Hash(header(row)->key);
      index.Prefetch(hashes[n]);
      if (++n == kGroup) insert();
    });
    insert();
    index_ = std::move(index);
    return Status();
  }

  uint64_t hash_key_;
  double max_load_;
  HashIndex index_;
  RowSlab slab_;
  ChangeLog changes_;
  CacheClock clock_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_KEYED_ROWS_H_
