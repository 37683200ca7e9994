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
  // The working folder: made with the folders above it, or an earlier store's. No two stores share
  // one.
  std::string path;
  // The store begins with the content of this checkpoint; empty: without rows.
  std::string checkpoint;
  // The checkpoint is read where it is, and nothing is written: `path` is but a name for errors,
  // and only MultiGet and Scan may be called.
  bool is_read_only = false;
  int64_t value_bytes = 0;
  // What the store may hold in memory: rows on their way to the disk, filters and index.
  int64_t memory_bytes = int64_t{256} << 20;
  // Reads that are in flight at once, of all MultiGet together. A disk needs many of them.
  int num_readers = 32;
};

// Since the store was opened, but for the last two. What is written of one put is
// disk_bytes_written / put_bytes, once files have been merged a while.
struct ColdStoreStatistics {
  int64_t num_gets = 0;            // keys that were asked for
  int64_t num_found = 0;           // of these
  int64_t num_puts = 0;            // rows
  int64_t put_bytes = 0;           // of these, with their keys
  int64_t num_erases = 0;          // keys
  int64_t num_disk_reads = 0;      // of MultiGet, that neither cache nor write buffer could answer
  int64_t disk_bytes_read = 0;     // by these
  int64_t disk_bytes_written = 0;  // into files of rows, and again where files are merged
  int64_t disk_bytes = 0;          // of the files, now
  int64_t memory_bytes = 0;        // held by the store, now
};

// Rows of a fixed number of bytes by int64 key, in files below DRAM. All calls are batches.
//
//   MultiPut({3, 7}, "aabb"), MultiGet({3, 5, 7}, values, found)
//     value_bytes 2: values = "aa??bb", found = {1, 0, 1}
//
// Keys of a batch ascend, each once: every int64 is legal. Otherwise, or where the bytes do not fit
// their number, the call is InvalidArgument and does nothing.
//
// Threads: all calls may run at the same time, from any thread. A row that is read while it is
// written is the old or the new one, whole. A batch is no transaction: a reader may see half of it.
//
// Errors name the path, with errno's or the implementation's text: ResourceExhausted for a full
// disk, DataLoss for files that are not what was written, else FailedPrecondition. After one
// * of MultiPut and Erase, each key has its old or its new row: call again with the same batch;
// * of MultiGet, `values` and `found` have no meaning;
// * nothing else is lost. Writes fail until their cause is gone, for some seconds longer perhaps;
//   reads go on. Writes reach the disk later, so an error may be that of an earlier call: what that
//   one put is still in memory, and is written once the disk allows.
//
// Durability: only what a checkpoint holds outlives the store. The files in the working folder are
// scratch, removed by the destructor and, after a kill, by the next store there.
class ColdStore {
 public:
  virtual ~ColdStore() = default;
  ColdStore(const ColdStore&) = delete;
  ColdStore& operator=(const ColdStore&) = delete;

  // Copies row i to `values` + i * value_bytes where found[i]; leaves others alone.
  Status MultiGet(Span<const int64_t> keys, Span<char> values, Span<bool> found);
  Status MultiPut(Span<const int64_t> keys, Span<const char> values);
  // Of keys with or without a row.
  Status Erase(Span<const int64_t> keys);

  // Calls `visit` with all rows, in batches of ascending keys, as of one moment: what other calls
  // do meanwhile is not seen. Stops at the first error. While it runs no space is given back.
  using Visit = std::function<Status(Span<const int64_t> keys, Span<const char> values)>;
  virtual Status Scan(const Visit& visit) = 0;

  // Everything that was put goes from memory to the disk, with the errors that this may have.
  virtual Status Flush() = 0;

  // Makes the folder `path`, which must not exist: all rows of calls that returned before, of calls
  // that run meanwhile perhaps. When it returns OK the checkpoint is on disk for certain, and later
  // calls do not change it; after an error, a kill or a loss of power `path` does not exist
  // (`path`.tmp may, and is replaced). Two at a time need two paths. In the file system of the
  // working folder it costs hard links, in others a copy. Linked files are one file: against a
  // failing disk keep a copy.
  virtual Status Checkpoint(const std::string& path) = 0;

  ColdStoreStatistics Statistics() const;
  const std::string& path() const { return path_; }
  int64_t value_bytes() const { return value_bytes_; }

 protected:
  explicit ColdStore(const ColdStoreOptions& options);
  // num_disk_reads and what follows it.
  virtual void AddStatistics(ColdStoreStatistics* statistics) const = 0;

 private:
  // As the public ones, with batches that have been checked and are not empty.
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
