#ifndef FUSED_EMBEDDING_CORE_TABLE_TIER_SHARD_TIER_H_
#define FUSED_EMBEDDING_CORE_TABLE_TIER_SHARD_TIER_H_

#include <atomic>
#include <cstdint>
#include <unordered_map>

#include "tf_ops/core/table/keyed_rows.h"

namespace fused_embedding {

// Rows and erased keys whose write-back is pending or in flight. Lookups find them here until the
// store has them.
struct LeavingRows {
  LeavingRows(uint64_t hash_key, double max_load, int64_t row_bytes)
      : rows(hash_key, max_load, row_bytes),
        erased(hash_key, max_load, int64_t{sizeof(RowHeader)}) {}
  Status Init() {
    FE_RETURN_IF_ERROR(rows.Init());
    return erased.Init();
  }
  int64_t size() const { return rows.size() + erased.size(); }
  int64_t memory_bytes() const { return rows.memory_bytes() + erased.memory_bytes(); }
  void Clear(int64_t row_bytes) {
    rows.Clear(row_bytes);
    erased.Clear(int64_t{sizeof(RowHeader)});
  }

  KeyedRows rows;
  KeyedRows erased;  // headers only; none of these keys is in `rows`
};

// State of a shard that has a cold store below it. A key may have rows in several places. The
// newest is the first of
//   DRAM (TableShard::rows_), waiting, writing, the store;
// the others are older. If `waiting` or `writing` has an older row of a key, its row in DRAM is
// dirty.
struct ShardTier {
  ShardTier(uint64_t hash_key, double max_load, int64_t row_bytes)
      : waiting(hash_key, max_load, row_bytes), writing(hash_key, max_load, row_bytes) {}

  int64_t max_rows = 0;  // in DRAM; exceeded while a batch runs
  int64_t num_cold = 0;  // keys with a row, but not in DRAM
  LeavingRows waiting;   // pending: the next write takes them
  LeavingRows writing;   // in flight: not changed until written
  // Reserved keys, and the batch that fetches each. Only that batch may insert the key into DRAM,
  // so the row that it reads from the store is the newest.
  std::unordered_map<int64_t, const void*> claims;
  std::atomic<int64_t>* num_leaving = nullptr;  // pending and in flight, in all shards
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TIER_SHARD_TIER_H_
