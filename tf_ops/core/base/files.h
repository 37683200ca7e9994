// What code that reads and writes files shares.

#ifndef FUSED_EMBEDDING_CORE_BASE_FILES_H_
#define FUSED_EMBEDDING_CORE_BASE_FILES_H_

#include <functional>
#include <string>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// "cannot ACTION PATH: ..." with the text of `error`, an errno. Full disks are ResourceExhausted,
// other errors FailedPrecondition.
Status SystemError(const std::string& action, const std::string& path, int error);

// "a/b" of "a/b/c", "." of "c".
std::string FolderOf(const std::string& path);

// Files made or renamed in a folder are on disk once the folder is. False: see errno.
bool SyncFolder(const std::string& folder);

// An open file, closed with it.
class File {
 public:
  // Flags as of open(2). get() < 0: see errno.
  File(const std::string& path, int flags);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return file_; }

 private:
  int file_;
};

// At the file's position; `path` is for errors.
Status WriteAll(const std::string& path, int file, Span<const char> bytes);
// From the file's position to its end.
using TakePiece = std::function<Status(Span<const char> piece)>;
Status ReadPieces(const std::string& path, int file, const TakePiece& take);
Status ReadFile(const std::string& path, const TakePiece& take);
// Appends all of it.
Status ReadFile(const std::string& path, std::string* bytes);
// A file that must not be there yet.
Status WriteNewFile(const std::string& path, Span<const char> bytes);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_FILES_H_
