#ifndef FUSED_EMBEDDING_CORE_STORAGE_COLD_STORE_H_
#define FUSED_EMBEDDING_CORE_STORAGE_COLD_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

struct ColdStoreOptions {
  // The working folder. It is made, with the folders above it, or may be left over from an earlier
  // store. Two stores cannot share a folder.
  std::string path;
  // The store starts with the content of this checkpoint; empty: without rows.
  std::string checkpoint;
  // Reads the checkpoint in place and writes nothing: `path` is only a name for errors, and only
  // MultiGet and Scan may be called.
  bool is_read_only = false;
  int64_t value_bytes = 0;
  // Limit of the store's memory: write buffers, filters and index.
  int64_t memory_bytes = int64_t{256} << 20;
  // Maximum number of reads in flight, of all MultiGet calls together. A disk is fast only with
  // many.
  int num_readers = 32;
};

// Counted since the store was opened, except the last two. The write amplification is
// disk_bytes_written / put_bytes, once compaction has run for a while.
struct ColdStoreStatistics {
  int64_t num_gets = 0;            // keys passed to MultiGet
  int64_t num_found = 0;           // those of them that had a row
  int64_t num_puts = 0;            // rows passed to MultiPut
  int64_t put_bytes = 0;           // their bytes, keys included
  int64_t num_erases = 0;          // keys
  int64_t num_disk_reads = 0;      // by MultiGet: misses of both cache and write buffer
  int64_t disk_bytes_read = 0;     // by these reads
  int64_t disk_bytes_written = 0;  // to files of rows, compaction included
  int64_t disk_bytes = 0;          // present size of the files
  int64_t memory_bytes = 0;        // present memory of the store
};

// Rows of a fixed number of bytes by int64 key, in files below DRAM. All calls are batches.
//
//   MultiPut({3, 7}, "aabb"), MultiGet({3, 5, 7}, values, found)
//     value_bytes 2: values = "aa??bb", found = {1, 0, 1}
//
// The keys of a batch must ascend, each once; every int64 is legal. Otherwise, or if the number of
// bytes does not match the number of keys, the call returns InvalidArgument and does nothing.
//
// Threads: all calls may run at the same time, from any thread. A read during a write of the same
// row returns the old or the new row, whole. A batch is not a transaction: a reader may see half of
// it.
//
// Errors name the path, with errno's or the implementation's text: ResourceExhausted for a full
// disk, DataLoss for files that are not what was written, else FailedPrecondition. After an error
// * of MultiPut and Erase, each key has its old or its new row: call again with the same batch;
// * of MultiGet, `values` and `found` have no meaning;
// * nothing else is lost. Writes fail until the cause is removed, and possibly some seconds longer;
//   reads continue. Writes reach the disk later, so an error may be that of an earlier call: the
//   rows of that call are still in memory, and are written once the disk allows it.
//
// Durability: only a checkpoint outlives the store. The files in the working folder are scratch.
// The destructor removes them; after a kill, the next store in that folder does.
class ColdStore {
 public:
  virtual ~ColdStore() = default;
  ColdStore(const ColdStore&) = delete;
  ColdStore& operator=(const ColdStore&) = delete;

  // Copies row i to `values` + i * value_bytes if found[i]; does not change the other values.
  Status MultiGet(Span<const int64_t> keys, Span<char> values, Span<bool> found);
  Status MultiPut(Span<const int64_t> keys, Span<const char> values);
  // Erases the rows of keys; a key may have no row.
  Status Erase(Span<const int64_t> keys);

  // Calls `visit` with all rows, in batches of ascending keys, as of one moment: changes by
  // concurrent calls are not visible. Stops at the first error. Disk space is not reclaimed while
  // it runs.
  using Visit = std::function<Status(Span<const int64_t> keys, Span<const char> values)>;
  virtual Status Scan(const Visit& visit) = 0;

  // Writes all rows in memory to the disk, and returns the error if that fails.
  virtual Status Flush() = 0;

  // Makes the folder `path`, which must not exist, with all rows of calls that have returned; rows
  // of concurrent calls may be included. Once it returns OK, the checkpoint is synced to the disk,
  // and later calls do not change it. After an error, a kill or a loss of power `path` does not
  // exist (`path`.tmp may exist, and is replaced). Concurrent checkpoints need different paths. In
  // the file system of the working folder a checkpoint costs hard links, in others a copy. Hard
  // links share their data: keep a copy on another disk against a disk failure.
  virtual Status Checkpoint(const std::string& path) = 0;

  ColdStoreStatistics Statistics() const;
  const std::string& path() const { return path_; }
  int64_t value_bytes() const { return value_bytes_; }

 protected:
  explicit ColdStore(const ColdStoreOptions& options);
  // Sets num_disk_reads and the fields after it.
  virtual void AddStatistics(ColdStoreStatistics* statistics) const = 0;

 private:
  // MultiGet, MultiPut and Erase for batches that were checked and are not empty.
  virtual Status Get(Span<const int64_t> keys, char* values, bool* found) = 0;
  virtual Status Put(Span<const int64_t> keys, const char* values) = 0;
  virtual Status Remove(Span<const int64_t> keys) = 0;

  Status CheckBatch(Span<const int64_t> keys, int64_t num_value_bytes) const;

  const std::string path_;
  const int64_t value_bytes_;
  std::atomic<int64_t> num_gets_{0}, num_found_{0}, num_puts_{0}, num_erases_{0};
};

// InvalidArgument for options that no implementation can have.
Status CheckOptions(const ColdStoreOptions& options);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_STORAGE_COLD_STORE_H_
