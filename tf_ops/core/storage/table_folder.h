#ifndef FUSED_EMBEDDING_CORE_STORAGE_TABLE_FOLDER_H_
#define FUSED_EMBEDDING_CORE_STORAGE_TABLE_FOLDER_H_

#include <memory>
#include <string>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/storage/folder_lock.h"

namespace fused_embedding {

// The folder below `root` of the name of a table: no two names have one.
//
//   FolderOfName("/ssd", "ads/users/part_0") = "/ssd/ads%2Fusers%2Fpart_0"
//
// Letters, digits, "_" and "-" stand for themselves, any other byte is "%" and its hex digits. A
// file name has 255 bytes at most, so a longer one is folders in each other, of which all but the
// last end in "%", as no name does.
std::string FolderOfName(const std::string& root, const std::string& name);

// That folder, for the stores of one table, one after the other. As long as this is there, others
// of the name in this process, as of two sessions, have NAME~2, NAME~3; other processes are
// refused.
class TableFolder {
 public:
  // Makes it. What a killed process left in it is removed. FailedPrecondition: another process has
  // it, or there are other files.
  static Status Make(const std::string& root, const std::string& name,
                     std::unique_ptr<TableFolder>* folder);
  // Removes what is in it, but for the file of the lock.
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
