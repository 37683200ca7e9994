#include "tf_ops/core/table/gpu/dram_copy.h"

#include <algorithm>
#include <cstring>

#include "tf_ops/core/table/gpu/host_rows.cu.h"

namespace fused_embedding {
namespace {

// Rows that are in host memory twice.
constexpr int64_t kRowsAtOnce = int64_t{1} << 18;

Status CheckLayouts(const RowLayout& from, const RowLayout& to) {
  if (from.value_type != to.value_type || from.dim != to.dim) {
    return InvalidArgument("a table of dim ", from.dim, " cannot be copied to one of dim ", to.dim,
                           ", or of another type; copy it to one that was made alike");
  }
  // Slots are at the same offsets if one table has those of the other, and then more.
  const size_t num_common = std::min(from.slots.size(), to.slots.size());
  if (std::equal(from.slots.begin(), from.slots.begin() + static_cast<int64_t>(num_common),
                 to.slots.begin())) {
    return Status();
  }
  return InvalidArgument("a table cannot be copied to one with other slots before its own ",
                         from.slots.size(), "; copy it to a new one");
}

// Calls body(rows) for all rows of a table, some buckets at a time.
template <typename Body>
Status ForEachPiece(const GpuExec& gpu, const GpuTable& table, const Body& body) {
  HostRows rows;
  for (int64_t begin = 0; begin < table.num_buckets(); begin += kRowsAtOnce / kEntries) {
    const int64_t end = std::min(begin + kRowsAtOnce / kEntries, table.num_buckets());
    FE_RETURN_IF_ERROR(ExportToHost(gpu, table, begin, end, &rows));
    FE_RETURN_IF_ERROR(body(rows));
  }
  return Status();
}

// Values and slots of rows, as a table in DRAM takes them.
Status UpsertPiece(const GpuTable& from, const HostRows& rows, EmbeddingTable* to) {
  const RowLayout& layout = from.config().layout;
  const size_t n = rows.keys.size(), value_bytes = static_cast<size_t>(layout.value_bytes());
  const size_t slot_bytes = static_cast<size_t>(layout.slot_width() * layout.slot_number_bytes());
  const int64_t slots_begin = layout.slots_offset() - layout.value_offset();
  std::vector<char> values(n * value_bytes), slots(n * slot_bytes);
  for (size_t i = 0; i < n; ++i) {
    const char* row = rows.rows.data() + static_cast<int64_t>(i) * from.row_bytes();
    std::memcpy(values.data() + i * value_bytes, row, value_bytes);
    if (slot_bytes > 0) std::memcpy(slots.data() + i * slot_bytes, row + slots_begin, slot_bytes);
  }
  const std::vector<int64_t> frequencies(rows.frequencies.begin(), rows.frequencies.end());
  const std::vector<int64_t> versions(rows.versions.begin(), rows.versions.end());
  EmbeddingTable::Content content;
  content.keys = AsSpan(rows.keys);
  content.values = values.data();
  content.slots = slot_bytes > 0 ? slots.data() : nullptr;
  content.frequencies = AsSpan(frequencies);
  content.versions = AsSpan(versions);
  content.slot_width = layout.slot_width();
  return to->Upsert(SerialExec(), content);
}

// Rows [begin, end) of those that CopyShard gives.
HostRows PieceOf(const RowLayout& layout, const std::vector<char>& rows, int64_t begin, int64_t end,
                 int64_t row_bytes) {
  HostRows piece;
  piece.rows.resize(static_cast<size_t>((end - begin) * row_bytes));
  const size_t kept = static_cast<size_t>(layout.row_bytes() - layout.value_offset());
  for (int64_t i = begin; i < end; ++i) {
    const char* row = rows.data() + i * layout.row_bytes();
    const RowHeader header = HeaderAt(row);
    piece.keys.push_back(header.key);
    piece.frequencies.push_back(header.frequency);
    piece.versions.push_back(header.version);
    std::memcpy(piece.rows.data() + (i - begin) * row_bytes, row + layout.value_offset(), kept);
  }
  return piece;
}

Status UpsertCounts(const GpuExec& gpu, const FilteredKeys& filtered, GpuTable* counts,
                    int64_t* num_lost) {
  if (counts == nullptr || filtered.keys.empty()) return Status();
  HostRows rows = {filtered.keys, filtered.frequencies, filtered.versions, {}};
  rows.rows.resize(filtered.keys.size() * static_cast<size_t>(counts->row_bytes()));
  return UpsertFromHost(gpu, rows, counts, num_lost);
}

}  // namespace

Status CopyToDram(const GpuExec& gpu, const GpuTable& from, EmbeddingTable* to) {
  FE_RETURN_IF_ERROR(CheckLayouts(from.config().layout, to->layout()));
  FE_RETURN_IF_ERROR(to->EnsureSlots(AsSpan(from.config().layout.slots)));
  FE_RETURN_IF_ERROR(
      ForEachPiece(gpu, from, [&](const HostRows& rows) { return UpsertPiece(from, rows, to); }));
  if (from.counts() == nullptr) return Status();
  return ForEachPiece(gpu, *from.counts(), [&](const HostRows& rows) {
    return to->RestoreFiltered({rows.keys, rows.frequencies, rows.versions});
  });
}

Status CopyFromDram(const GpuExec& gpu, const EmbeddingTable& from, GpuTable* to,
                    int64_t* num_lost) {
  const RowLayout of_table = from.layout();
  FE_RETURN_IF_ERROR(CheckLayouts(of_table, to->config().layout));
  FE_RETURN_IF_ERROR(to->EnsureSlots(gpu, AsSpan(of_table.slots)));
  for (int64_t shard = 0; shard < from.num_shards(); ++shard) {
    RowLayout layout;
    std::vector<char> rows;
    FilteredKeys filtered;
    FE_RETURN_IF_ERROR(from.CopyShard(shard, &layout, &rows, &filtered));
    const int64_t num_rows = static_cast<int64_t>(rows.size()) / layout.row_bytes();
    for (int64_t begin = 0; begin < num_rows; begin += kRowsAtOnce) {
      const int64_t end = std::min(begin + kRowsAtOnce, num_rows);
      const HostRows piece = PieceOf(layout, rows, begin, end, to->row_bytes());
      FE_RETURN_IF_ERROR(UpsertFromHost(gpu, piece, to, num_lost));
    }
    FE_RETURN_IF_ERROR(UpsertCounts(gpu, filtered, to->counts(), num_lost));
  }
  return Status();
}

}  // namespace fused_embedding
