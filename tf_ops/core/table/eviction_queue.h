#ifndef FUSED_EMBEDDING_CORE_TABLE_EVICTION_QUEUE_H_
#define FUSED_EMBEDDING_CORE_TABLE_EVICTION_QUEUE_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/table/keyed_rows.h"

namespace fused_embedding {

// The rows that a full shard gives up next. Finding them takes a pass over all rows, so many are
// found at once and kept for later batches: a row that was used since is passed over then.
//
// Exact in a shard of up to kExactRows rows, where the pass is made for each batch. In a larger one
// LRU is exact too while versions grow, and LFU spares rows that are new until the next pass.
class EvictionQueue {
 public:
  static constexpr int64_t kExactRows = 4096;

  // `by_frequency`: least often used first, of those the longest ago; else the longest ago.
  explicit EvictionQueue(bool by_frequency) : by_frequency_(by_frequency) {}

  // Makes room for the pins of a batch of so many keys; only this may throw std::bad_alloc.
  void StartBatch(const KeyedRows& rows, int64_t num_keys);
  // Rows of a batch are pinned until it ends.
  void Pin(uint32_t row);
  void EndBatch();
  // The row to give up, or kNoRow where all are pinned or memory is short. `num_wanted`: victims of
  // this batch to come.
  uint32_t Next(const KeyedRows& rows, int64_t num_wanted);
  void Clear();

 private:
  struct Victim {
    uint64_t score;
    uint32_t row;
  };

  uint64_t Score(const RowHeader& header) const;
  bool IsPinned(uint32_t row) const;
  uint32_t NextKept(const KeyedRows& rows);
  void Fill(const KeyedRows& rows, int64_t num_wanted);

  bool by_frequency_;
  std::vector<Victim> victims_;  // the next one last
  std::vector<uint64_t> pins_;   // a bit a row
  std::vector<uint32_t> pinned_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_EVICTION_QUEUE_H_
