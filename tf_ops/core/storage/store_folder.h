#ifndef FUSED_EMBEDDING_CORE_STORAGE_STORE_FOLDER_H_
#define FUSED_EMBEDDING_CORE_STORAGE_STORE_FOLDER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/storage/cold_store.h"
#include "tf_ops/core/storage/folder_lock.h"

namespace fused_embedding {

// The files of an implementation, as far as this has to know them.
struct StoreFiles {
  std::string kind;  // a word, written into checkpoints
  // Files with this ending never change once written: they are linked, others copied. They are
  // large, and the implementation notices damage in them: only their ends are checked here.
  std::string immutable_suffix;
};

struct CheckpointList;
struct ListedFile;

struct FileSum {
  int64_t size = 0;
  uint32_t crc = 0;  // CRC-32C of all or of the end
};

// The folders of a cold store:
//
//   PATH/fe_cold_store            the lock of the process that has the store, and the sign that
//                                 what is in the folder may be removed
//   PATH/data/                    the implementation's files
//   CHECKPOINT/fe_cold_checkpoint list of the files, written last
//   CHECKPOINT/data/              these
//
// Not for several threads, but Checkpoint of different paths.
class StoreFolder {
 public:
  explicit StoreFolder(StoreFiles files) : files_(std::move(files)) {}
  // Removes data_path(): whoever writes there must have stopped.
  ~StoreFolder();
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;

  // FailedPrecondition: another store has the folder, or it has other files. The files of the
  // checkpoint, if there is one, are then in data_path(), checked; without one it does not exist.
  // DataLoss: a file is missing or not what was written. Unimplemented: a later format.
  // InvalidArgument: rows of another size, or another implementation's.
  // To read only, the checkpoint's files are checked where they are.
  Status Open(const ColdStoreOptions& options);
  std::string data_path() const { return path_ + "/data"; }
  // Whether the working folder's file system can do direct IO; false without such a folder.
  bool HasDirectIo() const;

  // Runs write(folder), which makes the folder and its files and does not sync them, and makes
  // the checkpoint `name` of that.
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
