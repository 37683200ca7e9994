// Content of a table in one file, written and read as a stream.

#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_CHECKPOINT_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/rows/shard_map.h"
#include "tf_ops/core/table/embedding_table.h"

namespace fused_embedding {

// Writes the table to `path`: first to a temporary file beside it, which is synced and renamed, so
// that `path` is either whole or absent; what was there before stays after an error.
// ResourceExhausted for a full disk. Other threads may train meanwhile: each row is saved with its
// slots as of one moment. Extra memory: one shard of the table.
//
// Of a table above a cold store, the rows are a checkpoint of that store: files beside `path`
// (cold_files.h), hard links where the file system has them. They too are there as a whole or not
// at all, and go when `path` is written anew. `as_one_file`: all rows are in `path`.
Status SaveTable(const EmbeddingTable& table, const std::string& path, bool as_one_file = false);

// A save of a series, in which the first has all of the table and each other one what changed since
// the one before: rows, counts, and the keys that have neither any more.
struct Increment {
  std::string path;                    // of the file to write
  Span<const std::string> base_paths;  // of the save to continue, the first of the series first;
                                       // empty: this is the first
  Span<const std::string> link_paths;  // other names that those get, as hard links: this save needs
                                       // them, and is to go with its own files alone
};

// Writes as SaveTable does. FailedPrecondition where the table does not know what changed since the
// last of `base_paths` (another series was begun, a restore, another process), or where they are
// gone or would be replaced: begin a series then. Unimplemented for a file system without hard
// links. A save that failed, or that nobody continues, costs no change: the save that it continues
// may be continued again.
Status SaveIncrement(const Increment& increment, EmbeddingTable* table);

// The files of a save of all partitions.
struct CheckpointFiles {
  // [num_links, partitions that were saved]: the saves of a series, the first one first.
  Span<const std::string> paths;
  int64_t num_links = 1;

  int64_t num_partitions() const { return num_links > 0 ? paths.size / num_links : 0; }
  const std::string& path(int64_t link, int64_t partition) const {
    return paths[link * num_partitions() + partition];
  }
};

// Which keys of a checkpoint belong to this table.
struct PartitionFilter {
  PartitionStrategy strategy = PartitionStrategy::kHash;
  int64_t index = 0;
  int64_t count = 1;

  bool Keeps(int64_t key) const { return PartitionOfKey(strategy, key, count) == index; }
};

// InvalidArgument for an index outside the count, or a strategy that needs the number of rows.
Status CheckPartition(const PartitionFilter& partition);

// Replaces the table's content by that of all `files` that `filter` keeps: rows with their slots,
// frequencies and versions, counts of keys not admitted, initializer (seed and matrix too) and
// step. Of a series it takes each key from the last file that says something of it.
//
// The files are checked whole before the table is touched: a truncated or altered one is a DataLoss
// that names it, another dim or value type and a series with a missing, foreign or misplaced file
// are an InvalidArgument, and the table is unharmed. They are kept open until they are loaded
// (held_files.h), so that removing them meanwhile does no harm. An error after the check (memory,
// the disk, a file that is overwritten) says that the rows are gone, and leaves the table empty.
// Extra memory: some blocks of a few MB, one shard of a Bloom filter, and the keys of the saves
// after the first.
//
// Counts of another kind of admission are of no use, nor are those of a Bloom filter of another
// size, seed or number of partitions: keys are then counted from zero again. `warning`, unless it
// is null, says so; it is empty if all came back.
Status RestoreTable(const CpuExec& exec, const CheckpointFiles& files,
                    const PartitionFilter& filter, EmbeddingTable* table,
                    std::string* warning = nullptr);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_CHECKPOINT_H_
