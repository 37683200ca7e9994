#include "tf_ops/core/base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

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

File::File(const std::string& path, int flags)
    : file_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {}

File::~File() {
  if (file_ >= 0) close(file_);
}

Status WriteAll(const std::string& path, int file, Span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data, static_cast<size_t>(bytes.size));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError("write", path, errno);
    bytes = {bytes.data + written, bytes.size - written};
  }
  return Status();
}

Status ReadPieces(const std::string& path, int file, const TakePiece& take) {
  std::vector<char> buffer(size_t{1} << 16);
  while (true) {
    const ssize_t size = read(file, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return SystemError("read", path, errno);
    if (size == 0) return Status();
    FE_RETURN_IF_ERROR(take({buffer.data(), size}));
  }
}

Status ReadFile(const std::string& path, const TakePiece& take) {
  const File file(path, O_RDONLY);
  if (file.get() < 0) return SystemError("open", path, errno);
  return ReadPieces(path, file.get(), take);
}

Status ReadFile(const std::string& path, std::string* bytes) {
  return ReadFile(path, [&](Span<const char> piece) {
    bytes->append(piece.data, static_cast<size_t>(piece.size));
    return Status();
  });
}

Status WriteNewFile(const std::string& path, Span<const char> bytes) {
  const File file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (file.get() < 0) return SystemError("create", path, errno);
  return WriteAll(path, file.get(), bytes);
}

}  // namespace fused_embedding
