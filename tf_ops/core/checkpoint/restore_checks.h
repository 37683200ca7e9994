// What a restore checks before it drops the rows that a table has, and what it says if it fails
// after that.

#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_RESTORE_CHECKS_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_RESTORE_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/embedding_table.h"

namespace fused_embedding {

// The blocks of a Bloom filter in the order in which they are read, without their counters.
class BloomBlocks {
 public:
  void Add(Span<const char> counters) { sizes_.push_back(counters.size); }
  void AddLines(Span<const BloomLine> lines);

  // DataLoss that names `path`, unless the blocks are a filter of the table's size: of as many
  // shards, each of which begins a block, and with lines that exist.
  Status Check(const std::string& path, const EmbeddingTable& table) const;

 private:
  std::vector<int64_t> sizes_;
  int64_t min_line_ = 0, max_line_ = 0;
};

// The error of a restore that had dropped the rows: empties the table of what was loaded, and says
// so.
Status EmptyTableAfter(const Status& error, EmbeddingTable* table);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_RESTORE_CHECKS_H_
