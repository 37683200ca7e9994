#include "tf_ops/core/storage/store_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <sstream>
#include <vector>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/base/files.h"

namespace fused_embedding {

// A line of the list of a checkpoint.
struct ListedFile {
  std::string name;
  int64_t size = -1;
  std::string crc;
};

// What the list of a checkpoint says.
struct CheckpointList {
  int version = 0;
  std::string kind;
  int64_t value_bytes = 0;
  std::vector<ListedFile> files;
};

namespace {

constexpr char kStoreLockName[] = "fe_cold_store";
constexpr char kListName[] = "fe_cold_checkpoint";
constexpr char kListMagic[] = "fused_embedding cold checkpoint";
// Counts up with every change that older readers would misunderstand. Any version ends with kEnd
// and the CRC32C of what is before it.
constexpr int kListVersion = 1;
constexpr char kEnd[] = "crc32c ";
constexpr int64_t kEndBytes = sizeof(kEnd) - 1 + 8 + 1;
// At the end of an immutable file, of which there is a checksum: where RocksDB says what is in it,
// with errors that name another file. Blocks before it have checksums of their own.
constexpr int64_t kTailBytes = int64_t{16} << 10;

std::string HexOf(uint32_t crc) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", crc);
  return text;
}

// Of at most the last `max_bytes`.
Status SumFile(const std::string& path, int64_t max_bytes, FileSum* sum) {
  const File file(path, O_RDONLY);
  if (file.get() < 0) return SystemError("open", path, errno);
  sum->size = lseek(file.get(), 0, SEEK_END);
  if (lseek(file.get(), std::max<int64_t>(sum->size - max_bytes, 0), SEEK_SET) < 0) {
    return SystemError("read", path, errno);
  }
  sum->crc = 0;
  return ReadPieces(path, file.get(), [&](Span<const char> piece) {
    sum->crc = Crc32c(piece, sum->crc);
    return Status();
  });
}

Status CopyFile(const std::string& from, const std::string& to) {
  const File file(to, O_WRONLY | O_CREAT | O_EXCL);
  if (file.get() < 0) return SystemError("create", to, errno);
  return ReadFile(from, [&](Span<const char> p) { return WriteAll(to, file.get(), p); });
}

// A hard link where the file systems have them.
Status LinkOrCopyFile(const std::string& from, const std::string& to) {
  // Of what a symbolic link names.
  if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) == 0) return Status();
  // ENOENT: of a file that was removed and is still open (/proc/self/fd).
  const bool is_impossible =
      errno == EXDEV || errno == EPERM || errno == EMLINK || errno == ENOTSUP || errno == ENOENT;
  return is_impossible ? CopyFile(from, to) : SystemError("link " + from + " to", to, errno);
}

Status SyncFile(const std::string& path) {
  const File file(path, O_RDONLY);
  if (file.get() < 0 || fsync(file.get()) != 0) return SystemError("sync", path, errno);
  return Status();
}

Status Damaged(const std::string& checkpoint, const std::string& reason) {
  return DataLoss("checkpoint ", checkpoint, " of a cold store is damaged: ", reason,
                  "; restore another one");
}

Status CheckIsThere(const std::string& checkpoint, const std::string& path) {
  if (access(path.c_str(), F_OK) == 0 || errno != ENOENT) return Status();
  return Damaged(checkpoint, "file " + path + " is missing");
}

Status ReadList(const std::string& checkpoint, CheckpointList* list) {
  const std::string path = checkpoint + "/" + kListName;
  std::string text;
  if (access(path.c_str(), F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
    return MakeStatus(StatusCode::kFailedPrecondition, checkpoint, " is no checkpoint of a cold ",
                      "store: there is no file ", path);
  }
  FE_RETURN_IF_ERROR(ReadFile(path, &text));
  const int64_t size = static_cast<int64_t>(text.size()) - kEndBytes;
  if (size < 0 ||
      text.substr(static_cast<size_t>(size)) != kEnd + HexOf(Crc32c({text.data(), size})) + "\n") {
    return Damaged(checkpoint, path + " does not have its checksum");
  }
  std::istringstream lines(text.substr(0, static_cast<size_t>(size)));
  std::string line, word;
  std::getline(lines, line);
  if (line.rfind(kListMagic, 0) != 0) {
    return Damaged(checkpoint, path + " does not begin as it should");
  }
  std::istringstream(line.substr(sizeof(kListMagic) - 1)) >> list->version;
  if (list->version != kListVersion) {
    return MakeStatus(StatusCode::kUnimplemented, "checkpoint ", checkpoint, " has format version ",
                      list->version, ", and this fused_embedding reads version ", kListVersion,
                      "; install the one that wrote it, or a newer one");
  }
  lines >> word >> list->kind >> word >> list->value_bytes;
  ListedFile file;
  while (lines >> word >> file.name >> file.size >> file.crc) list->files.push_back(file);
  return Status();
}

}  // namespace

StoreFolder::~StoreFolder() {
  if (!lock_.is_taken()) return;
  // What cannot be removed now, the next store here removes.
  const Status is_removed = RemoveTree(data_path());
  static_cast<void>(is_removed);
}

bool StoreFolder::IsImmutable(const std::string& name) const {
  const std::string& suffix = files_.immutable_suffix;
  return !suffix.empty() && name.size() >= suffix.size() &&
         name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

Status StoreFolder::Open(const ColdStoreOptions& options) {
  FE_RETURN_IF_ERROR(CheckOptions(options));
  value_bytes_ = options.value_bytes;
  path_ = options.is_read_only ? options.checkpoint : options.path;  // of data_path()
  if (options.is_read_only) return CheckCheckpoint(path_);
  FE_RETURN_IF_ERROR(MakeFolders(path_));
  FE_RETURN_IF_ERROR(lock_.Take(path_, kStoreLockName));
  FE_RETURN_IF_ERROR(RemoveTree(data_path()));
  return options.checkpoint.empty() ? Status() : TakeCheckpoint(options.checkpoint);
}

bool StoreFolder::HasDirectIo() const {
  const std::string probe = path_ + "/" + kStoreLockName;
  return File(probe, O_RDONLY | O_DIRECT).get() >= 0;
}

Status StoreFolder::Sum(const std::string& path, FileSum* sum) const {
  const bool is_immutable = IsImmutable(path);
  return SumFile(path, is_immutable ? kTailBytes : std::numeric_limits<int64_t>::max(), sum);
}

Status StoreFolder::ReadCheckpointList(const std::string& checkpoint, CheckpointList* list) const {
  FE_RETURN_IF_ERROR(ReadList(checkpoint, list));
  if (list->kind == files_.kind && list->value_bytes == value_bytes_) return Status();
  return InvalidArgument("checkpoint ", checkpoint, " is of a cold store of kind ", list->kind,
                         " with rows of ", list->value_bytes, " bytes, and cannot be read as one ",
                         "of kind ", files_.kind, " with rows of ", value_bytes_, " bytes");
}

// Whether `path` is what the list says of a file that `checkpoint` has.
Status StoreFolder::CheckFile(const std::string& checkpoint, const ListedFile& listed,
                              const std::string& path) const {
  const std::string file = checkpoint + "/data/" + listed.name;
  FileSum sum;
  FE_RETURN_IF_ERROR(Sum(path, &sum));
  if (sum.size != listed.size) {
    return Damaged(checkpoint, "file " + file + " has " + std::to_string(sum.size) +
                                   " bytes instead of " + std::to_string(listed.size));
  }
  if (HexOf(sum.crc) == listed.crc) return Status();
  return Damaged(checkpoint, "file " + file + " does not have its checksum");
}

Status StoreFolder::CheckCheckpoint(const std::string& checkpoint) const {
  CheckpointList list;
  FE_RETURN_IF_ERROR(ReadCheckpointList(checkpoint, &list));
  for (const ListedFile& listed : list.files) {
    const std::string path = checkpoint + "/data/" + listed.name;
    FE_RETURN_IF_ERROR(CheckIsThere(checkpoint, path));
    FE_RETURN_IF_ERROR(CheckFile(checkpoint, listed, path));
  }
  return Status();
}

Status StoreFolder::TakeCheckpoint(const std::string& checkpoint) const {
  CheckpointList list;
  FE_RETURN_IF_ERROR(ReadCheckpointList(checkpoint, &list));
  if (mkdir(data_path().c_str(), 0777) != 0) {
    return SystemError("make the folder", data_path(), errno);
  }
  for (const ListedFile& listed : list.files) {
    const std::string from = checkpoint + "/data/" + listed.name;
    FE_RETURN_IF_ERROR(CheckIsThere(checkpoint, from));
    const std::string to = data_path() + "/" + listed.name;
    FE_RETURN_IF_ERROR(IsImmutable(listed.name) ? LinkOrCopyFile(from, to) : CopyFile(from, to));
    FE_RETURN_IF_ERROR(CheckFile(checkpoint, listed, to));
  }
  return Status();
}

// And syncs what it lists.
Status StoreFolder::ListFiles(const std::string& folder, std::string* list) const {
  std::vector<std::string> names;
  FE_RETURN_IF_ERROR(NamesIn(folder, &names));
  std::ostringstream text(std::ios_base::out);
  text << kListMagic << ' ' << kListVersion << "\nkind " << files_.kind << "\nvalue_bytes "
       << value_bytes_ << '\n';
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    FE_RETURN_IF_ERROR(SyncFile(path));
    FileSum sum;
    FE_RETURN_IF_ERROR(Sum(path, &sum));
    text << "file " << name << ' ' << sum.size << ' ' << HexOf(sum.crc) << '\n';
  }
  *list = text.str();
  *list += kEnd + HexOf(Crc32c(AsSpan(*list))) + "\n";
  return SyncFolder(folder) ? Status() : SystemError("sync the folder", folder, errno);
}

Status StoreFolder::Checkpoint(const std::string& name, const WriteFiles& write) const {
  std::string path = name;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty() || path.find('\0') != std::string::npos) {
    return InvalidArgument("a checkpoint of cold store ", path_,
                           " needs the name of a folder, got \"", path, "\"");
  }
  if (access(path.c_str(), F_OK) == 0) {
    return MakeStatus(StatusCode::kFailedPrecondition, "cannot make checkpoint ", path,
                      " of cold store ", path_, ": it exists; remove it first");
  }
  const std::string temporary = path + ".tmp";
  const auto make = [&] {
    FE_RETURN_IF_ERROR(RemoveTree(temporary));
    FE_RETURN_IF_ERROR(MakeFolders(temporary));
    FE_RETURN_IF_ERROR(write(temporary + "/data"));
    std::string list;
    FE_RETURN_IF_ERROR(ListFiles(temporary + "/data", &list));
    const std::string list_path = temporary + "/" + kListName;
    const File file(list_path, O_WRONLY | O_CREAT | O_EXCL);
    if (file.get() < 0) return SystemError("create", list_path, errno);
    FE_RETURN_IF_ERROR(WriteAll(list_path, file.get(), AsSpan(list)));
    if (fsync(file.get()) != 0) return SystemError("sync", list_path, errno);
    if (!SyncFolder(temporary)) return SystemError("sync the folder", temporary, errno);
    if (rename(temporary.c_str(), path.c_str()) != 0) return SystemError("make", path, errno);
    return SyncFolder(FolderOf(path)) ? Status() : SystemError("sync the folder of", path, errno);
  };
  const Status made = make();
  if (!made.ok()) {
    const Status is_removed = RemoveTree(temporary);  // or by the next one of this name
    static_cast<void>(is_removed);
  }
  return made;
}

}  // namespace fused_embedding
