#ifndef FUSED_EMBEDDING_CORE_TABLE_TIER_SHARD_TIER_H_
#define FUSED_EMBEDDING_CORE_TABLE_TIER_SHARD_TIER_H_

#include <atomic>
#include <cstdint>
#include <unordered_map>

#include "tf_ops/core/table/keyed_rows.h"

namespace fused_embedding {

// Rows and erased keys on their way to the cold store. They are found here until they are in it.
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
  KeyedRows erased;  // headers; none of these keys is in `rows`
};

// What a shard has beside its rows where a cold store is below them. A key's row is the first of
//   in DRAM (TableShard::rows_), waiting, writing, in the store;
// the ones behind it are older. A row in DRAM is dirty where an older one is on its way.
struct ShardTier {
  ShardTier(uint64_t hash_key, double max_load, int64_t row_bytes)
      : waiting(hash_key, max_load, row_bytes), writing(hash_key, max_load, row_bytes) {}

  int64_t max_rows = 0;  // in DRAM; more while a batch is worked on
  int64_t num_cold = 0;  // keys with a row that is not in DRAM
  LeavingRows waiting;   // for the next write
  LeavingRows writing;   // being written, and not changed until that is done
  // Keys whose row is being fetched, and by whom. They get no row in DRAM but by that batch, so
  // that what it reads from the store is the newest.
  std::unordered_map<int64_t, const void*> claims;
  std::atomic<int64_t>* num_leaving = nullptr;  // of all shards
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TIER_SHARD_TIER_H_
