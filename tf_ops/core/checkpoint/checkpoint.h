// Content of a table in one file, written and read as a stream.

#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_CHECKPOINT_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/partition.h"
#include "tf_ops/core/table/embedding_table.h"

namespace fused_embedding {

// Writes the table to `path`: first to a temporary file beside it, which is synced and renamed, so
// that `path` is either whole or absent; what was there before stays after an error.
// ResourceExhausted for a full disk. Other threads may train meanwhile: each row is saved with its
// slots as of one moment. Extra memory: one shard of the table.
Status SaveTable(const EmbeddingTable& table, const std::string& path);

// Which keys of a checkpoint belong to this table.
struct PartitionFilter {
  PartitionStrategy strategy = PartitionStrategy::kHash;
  int64_t index = 0;
  int64_t count = 1;

  bool Keeps(int64_t key) const { return PartitionOfKey(strategy, key, count) == index; }
};

// InvalidArgument for an index outside the count, or a strategy that needs the number of rows.
Status CheckPartition(const PartitionFilter& partition);

// Replaces the table's content by that of all `paths` that `filter` keeps: rows with their slots,
// frequencies and versions, counts of keys not admitted, initializer (seed and matrix too) and
// step. `paths` are the files of all partitions that were saved together, in the order of
// partitions.
//
// The files are checked whole before the table is touched: a truncated or altered one is a DataLoss
// that names it, another dim or value type an InvalidArgument, and the table is unharmed. An error
// after that (memory, a file that changes meanwhile) leaves the table empty. Extra memory: some
// blocks of a few MB, and one shard of a Bloom filter.
//
// Counts of another kind of admission are of no use, nor are those of a Bloom filter of another
// size, seed or number of partitions: keys are then counted from zero again. `warning`, unless it
// is null, says so; it is empty if all came back.
Status RestoreTable(const CpuExec& exec, Span<const std::string> paths,
                    const PartitionFilter& filter, EmbeddingTable* table,
                    std::string* warning = nullptr);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_CHECKPOINT_H_
