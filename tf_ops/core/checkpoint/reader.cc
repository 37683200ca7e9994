#include "tf_ops/core/checkpoint/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "tf_ops/core/base/crc32c.h"

namespace fused_embedding {
namespace {

template <typename T>
uint32_t CrcBefore(const T& value, int64_t size) {
  return Crc32c({reinterpret_cast<const char*>(&value), size});
}

}  // namespace

Status BlockReader::Damaged(const std::string& reason) const {
  return DataLoss("checkpoint ", path_, " is damaged: from byte ", block_position_, " on, ", reason,
                  "; restore another one");
}

Status BlockReader::Open(const std::string& path, HeldFiles* held) {
  path_ = path;
  const auto cannot_open = [&](const std::string& reason) {
    return MakeStatus(StatusCode::kFailedPrecondition, "cannot open checkpoint ", path, ": ",
                      reason);
  };
  if (held != nullptr) file_ = held->Hold(path);
  // A pipe without a writer must not block.
  if (file_ == nullptr) file_ = std::make_shared<const File>(path, O_RDONLY | O_NONBLOCK);
  struct stat info;
  if (file_->get() < 0 || fstat(file_->get(), &info) != 0) {
    return cannot_open(std::generic_category().message(errno));
  }
  if (!S_ISREG(info.st_mode)) return cannot_open("it is not a file");
  if (lseek(file_->get(), 0, SEEK_SET) != 0) {
    return cannot_open(std::generic_category().message(errno));
  }
  file_bytes_ = info.st_size;
  FilePrefix prefix;
  FE_RETURN_IF_ERROR(ReadBytes(&prefix, sizeof(prefix)));
  return CheckPrefix(prefix);
}

Status BlockReader::CheckPrefix(const FilePrefix& prefix) const {
  if (std::memcmp(prefix.magic, kMagic, sizeof(prefix.magic)) != 0) {
    return Damaged("it does not begin as the file of an embedding table does");
  }
  if (prefix.crc != CrcBefore(prefix, offsetof(FilePrefix, crc))) {
    return Damaged("its first bytes do not have their checksum");
  }
  if (prefix.version >= 1 && prefix.version <= kFormatVersion) return Status();
  return MakeStatus(StatusCode::kUnimplemented, "checkpoint ", path_, " has format version ",
                    prefix.version, ", and this fused_embedding reads versions up to ",
                    kFormatVersion, "; install the one that wrote it, or a newer one");
}

Status BlockReader::CheckHeader(const BlockHeader& header) const {
  if (header.crc != CrcBefore(header, offsetof(BlockHeader, crc))) {
    return Damaged("the header of a block does not have its checksum");
  }
  if (header.number != num_blocks_) return Damaged("blocks are missing or in another order");
  if (header.type < static_cast<uint32_t>(BlockType::kTable) ||
      header.type > static_cast<uint32_t>(BlockType::kColdFile)) {
    return Damaged("a block is of no known type");
  }
  const auto left = static_cast<uint64_t>(file_bytes_ - position_);
  if (header.payload_bytes > left) return Damaged("it is truncated within a block");
  const bool is_last = header.type == static_cast<uint32_t>(BlockType::kFooter);
  if (is_last && header.payload_bytes != left) return Damaged("bytes follow its end");
  return Status();
}

Status BlockReader::Next(Block* block) {
  block_position_ = position_;
  BlockHeader header;
  FE_RETURN_IF_ERROR(ReadBytes(&header, sizeof(header)));
  FE_RETURN_IF_ERROR(CheckHeader(header));
  ++num_blocks_;
  const auto size = static_cast<int64_t>(header.payload_bytes);
  if (payload_.size() < size) FE_RETURN_IF_ERROR(payload_.Allocate(size));
  FE_RETURN_IF_ERROR(ReadBytes(payload_.data(), size));
  block->type = static_cast<BlockType>(header.type);
  block->payload = {payload_.data(), size};
  if (header.payload_crc == Crc32c(block->payload)) return Status();
  return Damaged("a block does not have its checksum");
}

Status BlockReader::ReadBytes(void* data, int64_t size) {
  char* bytes = static_cast<char*>(data);
  if (size > file_bytes_ - position_) return Damaged("it is truncated");
  while (size > 0) {
    const ssize_t num_read = read(file_->get(), bytes, static_cast<size_t>(size));
    if (num_read < 0 && errno == EINTR) continue;
    if (num_read < 0) {
      return Damaged("it cannot be read: " + std::generic_category().message(errno));
    }
    if (num_read == 0) return Damaged("it is truncated");
    bytes += num_read;
    size -= num_read;
    position_ += num_read;
  }
  return Status();
}

}  // namespace fused_embedding
