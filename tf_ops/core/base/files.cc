#include "tf_ops/core/base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace fused_embedding {

Status SystemError(const std::string& action, const std::string& path, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return MakeStatus(is_full ? StatusCode::kResourceExhausted : StatusCode::kFailedPrecondition,
                    "cannot ", action, " ", path, ": ", std::generic_category().message(error));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool SyncFolder(const std::string& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return false;
  // Some file systems cannot, and say so.
  const bool is_synced = fsync(file) == 0 || errno == EINVAL || errno == EROFS;
  const int error = errno;
  close(file);
  errno = error;
  return is_synced;
}

}  // namespace fused_embedding
