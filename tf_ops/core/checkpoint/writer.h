#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_WRITER_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/checkpoint/format.h"

namespace fused_embedding {

// InvalidArgument unless a checkpoint can be written to `path`: if it is empty, or has a zero byte,
// at which a system call would end it.
Status CheckFileName(const std::string& path);

// Writes blocks to a temporary file beside `path`, which Place makes `path`. Without that, or after
// an error before, nothing is left.
class BlockWriter {
 public:
  BlockWriter() = default;
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  Status Open(const std::string& path);
  Status Write(BlockType type, Span<const char> payload);
  // From then on `path` is the file, whole; after a loss of power, once Commit has returned.
  Status Place();
  Status Commit();

 private:
  Status WriteBytes(const void* data, int64_t size);
  // The error of the last system call.
  Status Error(const char* action) const;
  void Discard();

  std::string path_;
  std::string temporary_path_;
  int file_ = -1;
  uint32_t num_blocks_ = 0;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_WRITER_H_
