#include "tf_ops/core/checkpoint/file_summary.h"

#include <new>

#include "tf_ops/core/checkpoint/table_file.h"

namespace fused_embedding {
namespace {

void Add(const RowHeader& header, KeyUse* use) {
  use->frequencies.push_back(header.frequency);
  use->versions.push_back(header.version);
}

Status Summarize(const std::string& path, FileSummary* summary) {
  *summary = FileSummary();
  TableFileVisitor visitor;
  visitor.slots = [&](Span<const Slot> slots) {
    summary->slots.assign(slots.begin(), slots.end());  // those that come later are more
    return Status();
  };
  visitor.rows = [&](const RowLayout& layout, Span<const char> rows) {
    for (int64_t i = 0; i < rows.size; i += layout.row_bytes()) {
      Add(HeaderAt(rows.data + i), &summary->rows);
    }
    return Status();
  };
  visitor.filtered = [&](Span<const RowHeader> keys) {
    for (const RowHeader& key : keys) Add(key, &summary->filtered);
    return Status();
  };
  visitor.bloom = [&](Span<const char> counters) {
    summary->bloom_bytes += counters.size;
    return Status();
  };
  return ReadTableFile(path, nullptr, visitor, &summary->header);
}

}  // namespace

Status SummarizeTableFile(const std::string& path, FileSummary* summary) {
  try {
    return Summarize(path, summary);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate 8 bytes for each key of checkpoint ", path);
  }
}

}  // namespace fused_embedding
