#include "tf_ops/core/checkpoint/writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/base/files.h"

namespace fused_embedding {
namespace {

template <typename T>
Span<const char> BytesBefore(const T& value, int64_t size) {
  return {reinterpret_cast<const char*>(&value), size};
}

// Makes a new file `path` + ".tmp-PROCESS-NUMBER", or returns -1.
int CreateBeside(const std::string& path, std::string* created) {
  static std::atomic<int64_t> next{0};
  // Other machines may write the same folder, and processes that were killed left files.
  constexpr int kAttempts = 1000;
  for (int i = 0; i < kAttempts; ++i) {
    *created = path + ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(next.fetch_add(1));
    const int file = open(created->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

}  // namespace

BlockWriter::~BlockWriter() { Discard(); }

void BlockWriter::Discard() {
  if (file_ < 0) return;
  close(file_);
  file_ = -1;
  unlink(temporary_path_.c_str());
}

Status BlockWriter::Error(const char* action) const {
  const int error = errno;
  return SystemError(std::string(action) + " checkpoint", path_, error);
}

Status CheckFileName(const std::string& path) {
  if (!path.empty() && path.find('\0') == std::string::npos) return Status();
  return InvalidArgument("the path of a checkpoint must be the name of a file, got \"", path, "\"");
}

Status BlockWriter::Open(const std::string& path) {
  path_ = path;
  FE_RETURN_IF_ERROR(CheckFileName(path));
  file_ = CreateBeside(path, &temporary_path_);
  if (file_ < 0) return Error("create");
  FilePrefix prefix;
  std::memcpy(prefix.magic, kMagic, sizeof(prefix.magic));
  prefix.version = kFormatVersion;
  prefix.crc = Crc32c(BytesBefore(prefix, offsetof(FilePrefix, crc)));
  return WriteBytes(&prefix, sizeof(prefix));
}

Status BlockWriter::Write(BlockType type, Span<const char> payload) {
  BlockHeader header;
  header.type = static_cast<uint32_t>(type);
  header.number = num_blocks_++;
  header.payload_bytes = static_cast<uint64_t>(payload.size);
  header.payload_crc = Crc32c(payload);
  header.crc = Crc32c(BytesBefore(header, offsetof(BlockHeader, crc)));
  FE_RETURN_IF_ERROR(WriteBytes(&header, sizeof(header)));
  return WriteBytes(payload.data, payload.size);
}

Status BlockWriter::WriteBytes(const void* data, int64_t size) {
  return WriteAll("checkpoint " + path_, file_, {static_cast<const char*>(data), size});
}

Status BlockWriter::Place() {
  if (fsync(file_) != 0) return Error("sync");
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) return Error("rename to");
  // Closed after the rename: up to here an error leaves a file to be removed.
  close(file_);  // what it could say, the sync has said
  file_ = -1;
  return Status();
}

Status BlockWriter::Commit() {
  return SyncFolder(FolderOf(path_)) ? Status() : Error("sync the folder of");
}

}  // namespace fused_embedding
