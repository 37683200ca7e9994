#include "tf_ops/core/lookup/remote/remote_rows.h"

#include "tf_ops/core/base/tasks.h"

namespace fused_embedding {
namespace {

// From so many rows on, a table is worth all threads.
constexpr int64_t kManyGathered = 32768;
constexpr int64_t kGatherNs = 20;

}  // namespace

Status SplitMessage(const KeyMessage& message, Span<const int64_t> row_bytes,
                    std::vector<MessagePart>* parts, int64_t* num_bytes) {
  int64_t first = 0;
  *num_bytes = 0;
  for (int64_t t = 0; t < row_bytes.size; ++t) {
    const int64_t size = message.num_keys[static_cast<size_t>(t)];
    MessagePart part = {{message.keys.span().data + first, size}, {}, *num_bytes};
    if (message.has_counts) part.counts = {message.counts.span().data + first, size};
    parts->push_back(part);
    first += size;
    int64_t bytes = 0;
    if (__builtin_mul_overflow(size, row_bytes[t], &bytes) ||
        __builtin_add_overflow(*num_bytes, bytes, num_bytes)) {
      return InvalidArgument("rows of a message of ", message.keys.size(),
                             " keys do not fit in memory");
    }
  }
  return Status();
}

Status GatherParts(const CpuExec& exec, Span<const TableView> tables, Span<const MessagePart> parts,
                   const std::vector<std::string>& names, char* rows) {
  std::vector<int64_t> sizes;
  for (const MessagePart& part : parts) sizes.push_back(part.keys.size);
  return RunTasks(
      exec, AsSpan(sizes), kManyGathered, kGatherNs, [&](const CpuExec& table_exec, int64_t t) {
        const MessagePart& part = parts[t];
        const Status status = Gather(table_exec, tables[t], part.keys, rows + part.first_byte);
        if (status.ok()) return status;
        if (names.empty()) return InvalidArgument("table ", t, ": ", status.message());
        return InvalidArgument(names[static_cast<size_t>(t)], ": ", status.message());
      });
}

}  // namespace fused_embedding
