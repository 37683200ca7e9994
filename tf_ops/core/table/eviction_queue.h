#ifndef FUSED_EMBEDDING_CORE_TABLE_EVICTION_QUEUE_H_
#define FUSED_EMBEDDING_CORE_TABLE_EVICTION_QUEUE_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/table/keyed_rows.h"

namespace fused_embedding {

// The rows that a full shard evicts next. Finding them takes a pass over all rows, so a pass finds
// many, which are kept for later batches. A row that was used since the pass is skipped.
//
// The order is exact in a shard of up to kExactRows rows, where each batch makes a pass. In a
// larger shard LRU is also exact as long as versions grow, and LFU does not evict new rows before
// the next pass.
class EvictionQueue {
 public:
  static constexpr int64_t kExactRows = 4096;

  // `by_frequency`: rows used least often first (ties: longest ago); else rows used longest ago
  // first.
  explicit EvictionQueue(bool by_frequency) : by_frequency_(by_frequency) {}

  // Makes room for the pins of a batch of `num_keys`. No other method throws std::bad_alloc.
  void StartBatch(const KeyedRows& rows, int64_t num_keys);
  // Rows of a batch are pinned until it ends.
  void Pin(uint32_t row);
  void EndBatch();
  // The row to evict, or kNoRow if all rows are pinned or memory runs out. `num_wanted`: how many
  // rows this batch still has to evict.
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
  std::vector<Victim> victims_;  // the next victim is the last element
  std::vector<uint64_t> pins_;   // one bit per row
  std::vector<uint32_t> pinned_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_EVICTION_QUEUE_H_
