#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_READER_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_READER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/files.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/checkpoint/format.h"
#include "tf_ops/core/checkpoint/held_files.h"

namespace fused_embedding {

struct Block {
  BlockType type;
  Span<const char> payload;  // until the next block is read
};

// Reads the blocks of a file one after the other. A block that it gives is as it was written.
// Memory: the largest block. Errors name the file, and the byte from which on it is wrong.
class BlockReader {
 public:
  BlockReader() = default;
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  // `held`, if given, keeps the file open for later readers.
  Status Open(const std::string& path, HeldFiles* held = nullptr);
  // Fails past the footer. The file ends with it, or Next fails there.
  Status Next(Block* block);

  // DataLoss: the block read last makes no sense.
  Status Damaged(const std::string& reason) const;

 private:
  Status ReadBytes(void* data, int64_t size);
  Status CheckPrefix(const FilePrefix& prefix) const;
  Status CheckHeader(const BlockHeader& header) const;

  std::string path_;
  std::shared_ptr<const File> file_;
  int64_t file_bytes_ = 0;
  int64_t position_ = 0;
  int64_t block_position_ = 0;
  uint32_t num_blocks_ = 0;
  Buffer<char> payload_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_READER_H_
