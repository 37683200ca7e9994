// Folders of scratch files, each of which one process uses at a time.

#ifndef FUSED_EMBEDDING_CORE_STORAGE_FOLDER_LOCK_H_
#define FUSED_EMBEDDING_CORE_STORAGE_FOLDER_LOCK_H_

#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Makes a folder and the folders above it; OK if it exists.
Status MakeFolders(const std::string& path);
// Removes a file, or a folder with its content; OK if it does not exist.
Status RemoveTree(const std::string& path);
// The names in a folder in ascending order, without "." and "..".
Status NamesIn(const std::string& folder, std::vector<std::string>* names);

// The lock on a folder. It locks a file in the folder, which also marks the folder's other files as
// removable. A kill releases the lock. The file is never removed, because a lock on a removed file
// protects nothing.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock() { Release(); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Locks the folder `path`; may be called once. FailedPrecondition: this or another process has
  // locked the folder, or the folder has files but none called `name`.
  Status Take(const std::string& path, const std::string& name);
  void Release();
  bool is_taken() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_STORAGE_FOLDER_LOCK_H_
