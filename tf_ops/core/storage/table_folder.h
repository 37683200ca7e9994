#ifndef FUSED_EMBEDDING_CORE_STORAGE_TABLE_FOLDER_H_
#define FUSED_EMBEDDING_CORE_STORAGE_TABLE_FOLDER_H_

#include <memory>
#include <string>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/storage/folder_lock.h"

namespace fused_embedding {

// The folder below `root` for a table's name. Two names never have the same folder.
//
//   FolderOfName("/ssd", "ads/users/part_0") = "/ssd/ads%2Fusers%2Fpart_0"
//
// Letters, digits, "_" and "-" are kept; any other byte becomes "%" and its hex digits. A file name
// has at most 255 bytes, so a longer name becomes nested folders. All of them except the last end
// in "%", which no encoded name does.
std::string FolderOfName(const std::string& root, const std::string& name);

// A table's folder, for the table's successive stores. As long as this object lives, other tables
// of the same name in this process, such as those of two sessions, get NAME~2, NAME~3, and other
// processes are refused.
class TableFolder {
 public:
  // Makes the folder, and removes files that a killed process left in it. FailedPrecondition:
  // another process has the folder, or it has other files.
  static Status Make(const std::string& root, const std::string& name,
                     std::unique_ptr<TableFolder>* folder);
  // Removes the folder's files, except the lock file.
  ~TableFolder();
  TableFolder(const TableFolder&) = delete;
  TableFolder& operator=(const TableFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit TableFolder(const std::string& first_path);
  Status Empty() const;

  std::string path_;
  FolderLock lock_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_STORAGE_TABLE_FOLDER_H_
