#ifndef FUSED_EMBEDDING_CORE_STORAGE_STORE_FOLDER_H_
#define FUSED_EMBEDDING_CORE_STORAGE_STORE_FOLDER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/storage/cold_store.h"
#include "tf_ops/core/storage/folder_lock.h"

namespace fused_embedding {

// What StoreFolder must know about an implementation's files.
struct StoreFiles {
  std::string kind;  // a word, written into checkpoints
  // Files with this suffix never change once written, so they are linked; other files are copied.
  // They are large, and the implementation detects damage in them, so only their ends are checked
  // here.
  std::string immutable_suffix;
};

struct CheckpointList;
struct ListedFile;

struct FileSum {
  int64_t size = 0;
  uint32_t crc = 0;  // CRC-32C of the whole file, or of the end of an immutable one
};

// The folders of a cold store:
//
//   PATH/fe_cold_store            lock of the process that has the store; it also marks the
//                                 folder's files as removable
//   PATH/data/                    the implementation's files
//   CHECKPOINT/fe_cold_checkpoint list of the files, written last
//   CHECKPOINT/data/              the files
//
// Not thread-safe, except for Checkpoint calls with different paths.
class StoreFolder {
 public:
  explicit StoreFolder(StoreFiles files) : files_(std::move(files)) {}
  // Removes data_path(). All writers there must have stopped.
  ~StoreFolder();
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;

  // Locks the folder. If `options` has a checkpoint, puts its files into data_path() and checks
  // them; otherwise data_path() does not exist afterwards. With is_read_only, checks the
  // checkpoint's files in place. FailedPrecondition: another store has the folder, or it has other
  // files. DataLoss: a file is missing or not what was written. Unimplemented: the checkpoint has a
  // later format. InvalidArgument: the checkpoint has rows of another size, or is another
  // implementation's.
  Status Open(const ColdStoreOptions& options);
  std::string data_path() const { return path_ + "/data"; }
  // Whether the working folder's file system supports direct IO; false without a working folder.
  bool HasDirectIo() const;

  // Calls write(folder), which makes the folder and its files without syncing them, and makes the
  // checkpoint `name` from that folder.
  using WriteFiles = std::function<Status(const std::string& folder)>;
  Status Checkpoint(const std::string& name, const WriteFiles& write) const;

 private:
  Status ReadCheckpointList(const std::string& checkpoint, CheckpointList* list) const;
  Status TakeCheckpoint(const std::string& checkpoint) const;
  Status CheckCheckpoint(const std::string& checkpoint) const;
  Status CheckFile(const std::string& checkpoint, const ListedFile& listed,
                   const std::string& path) const;
  Status ListFiles(const std::string& folder, std::string* list) const;
  Status Sum(const std::string& path, FileSum* sum) const;
  bool IsImmutable(const std::string& name) const;

  const StoreFiles files_;
  std::string path_;
  int64_t value_bytes_ = 0;
  FolderLock lock_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_STORAGE_STORE_FOLDER_H_
