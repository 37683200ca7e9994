#include "tf_ops/core/checkpoint/restore_checks.h"

#include <algorithm>

namespace fused_embedding {

void BloomBlocks::AddLines(Span<const BloomLine> lines) {
  for (const BloomLine& line : lines) {
    min_line_ = std::min(min_line_, line.number);
    max_line_ = std::max(max_line_, line.number);
  }
}

Status BloomBlocks::Check(const std::string& path, const EmbeddingTable& table) const {
  const int64_t filter_bytes = table.BloomBytes();
  const int64_t shard_bytes = filter_bytes / table.num_shards();
  const int64_t num_lines = filter_bytes / CountingBloomFilter::kLineBytes;
  int64_t of_shard = 0, all = 0;
  bool is_good = min_line_ >= 0 && max_line_ < num_lines;
  for (const int64_t size : sizes_) {
    all += size;
    of_shard += size;
    is_good = is_good && of_shard <= shard_bytes;
    if (of_shard == shard_bytes) of_shard = 0;
  }
  if (is_good && all == filter_bytes) return Status();
  return DataLoss("checkpoint ", path, " is damaged: its Bloom filter does not have the ",
                  filter_bytes, " bytes in ", table.num_shards(),
                  " shards that its header says; restore another one");
}

Status EmptyTableAfter(const Status& error, EmbeddingTable* table) {
  const Status cleared = table->Clear();
  if (cleared.ok()) {
    return MakeStatus(error.code(), error.message(),
                      "; the rows that the table had are gone, and it is empty: restore again");
  }
  return MakeStatus(error.code(), error.message(),
                    "; the rows that the table had are gone, and it has a part of the new ones, "
                    "because it could not be emptied: ",
                    cleared.message(), "; restore again");
}

}  // namespace fused_embedding
