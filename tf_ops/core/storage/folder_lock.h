// Folders whose files are scratch, and which one process has at a time.

#ifndef FUSED_EMBEDDING_CORE_STORAGE_FOLDER_LOCK_H_
#define FUSED_EMBEDDING_CORE_STORAGE_FOLDER_LOCK_H_

#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// With the folders above it; OK if it is there.
Status MakeFolders(const std::string& path);
// A file, or a folder with all that is in it; OK if it is not there.
Status RemoveTree(const std::string& path);
// Names in ascending order, without "." and "..".
Status NamesIn(const std::string& folder, std::vector<std::string>* names);

// The lock on a folder: on a file in it, which is also the sign that what else is there may be
// removed. A kill releases it. The file stays: a lock on a file that was removed protects nothing.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock() { Release(); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Once. FailedPrecondition: another lock is on the folder `path`, of this process or of another
  // one, or it has files and none called `name`.
  Status Take(const std::string& path, const std::string& name);
  void Release();
  bool is_taken() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_STORAGE_FOLDER_LOCK_H_
