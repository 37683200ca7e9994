#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_FILE_SUMMARY_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_FILE_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/status.h"
#include "tf_ops/core/checkpoint/format.h"

namespace fused_embedding {

// Frequency and version of keys, in the order of the file.
struct KeyUse {
  std::vector<uint32_t> frequencies;
  std::vector<uint32_t> versions;
};

// What a table's file says of a table whose dim and type are not known; no keys, values or numbers
// of slots.
struct FileSummary {
  TableHeader header;
  std::vector<Slot> slots;
  KeyUse rows;
  KeyUse filtered;
  int64_t bloom_bytes = 0;
};

// Reads and checks the whole file. Memory: 8 bytes a key, and a block of the file. Errors are those
// of ReadTableFile.
Status SummarizeTableFile(const std::string& path, FileSummary* summary);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_FILE_SUMMARY_H_
