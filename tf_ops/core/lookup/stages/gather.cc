#include "tf_ops/core/lookup/stages/gather.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "tf_ops/core/base/simd.h"

namespace fused_embedding {
namespace {

// Rows in flight. 16 to 32 were equal within noise for rows of 64 to 256 bytes, 8 was slower.
constexpr int64_t kGatheredRowsAhead = 24;

// kRowBytes > 0: known when compiled, so that a copy is a few vector moves; 0: table.row_bytes.
template <int64_t kRowBytes, typename Id>
FE_INLINE int64_t CopyRowsOf(TableView table, Span<const Id> ids, int64_t begin, int64_t end,
                             int64_t last, RowsOut out) {
  const int64_t row_bytes = kRowBytes > 0 ? kRowBytes : table.row_bytes;
  // Negative ids are huge unsigned ones, so one comparison checks both limits.
  const auto is_valid = [&](Id id) {
    return static_cast<uint64_t>(int64_t{id}) < static_cast<uint64_t>(table.num_rows);
  };
  // The hardware prefetcher does not follow results that lie apart. Where they are longer than a
  // cache line, it does well enough, and more instructions cost more than they save.
  constexpr int64_t kCacheLine = 64;
  const bool is_apart = row_bytes <= kCacheLine && out.stride_bytes != row_bytes;
  for (int64_t i = begin; i < end; ++i) {
    if (i + kGatheredRowsAhead < last && is_valid(ids[i + kGatheredRowsAhead])) {
      PrefetchRow(table.data + ids[i + kGatheredRowsAhead] * row_bytes, row_bytes);
      if (is_apart) __builtin_prefetch(out.data + (i + kGatheredRowsAhead) * out.stride_bytes, 1);
    }
    const Id id = ids[i];
    if (!is_valid(id)) return i;
    if (row_bytes == 0) continue;  // an empty tensor has no memory, and memcpy must not get null
    std::memcpy(out.data + i * out.stride_bytes, table.data + id * row_bytes,
                static_cast<size_t>(row_bytes));
  }
  return end;
}

template <typename Id>
FE_INLINE int64_t CopyRowsOfAnySize(const TableView& table, Span<const Id> ids, int64_t begin,
                                    int64_t end, int64_t last, const RowsOut& out) {
  switch (table.row_bytes) {
    case 32:
      return CopyRowsOf<32>(table, ids, begin, end, last, out);
    case 64:
      return CopyRowsOf<64>(table, ids, begin, end, last, out);
    case 128:
      return CopyRowsOf<128>(table, ids, begin, end, last, out);
    case 256:
      return CopyRowsOf<256>(table, ids, begin, end, last, out);
    default:
      return CopyRowsOf<0>(table, ids, begin, end, last, out);
  }
}

}  // namespace

Status NoSuchRow(int64_t id, int64_t position, int64_t num_rows) {
  return InvalidArgument("id ", id, " at position ", position, " is outside [0, ", num_rows,
                         "), the rows of the table; prune negative ids, and hash or clip ids that "
                         "are too large");
}

// The widest stores fill a cache line at once: four narrow ones would fill the store buffer while
// they wait for their line.
template <typename Id>
int64_t CopyRows(const TableView& table, Span<const Id> ids, int64_t begin, int64_t end,
                 int64_t last, const RowsOut& out) {
  int64_t stop = begin;
  WithSimd([&]() FE_INLINE_LAMBDA { stop = CopyRowsOfAnySize(table, ids, begin, end, last, out); });
  return stop;
}

template <typename Id>
Status Gather(const CpuExec& exec, const TableView& table, Span<const Id> ids, char* out) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> first_bad{kNone};
  const int64_t row_ns = 5 + table.row_bytes / 16;
  exec.ParallelFor(ids.size, row_ns, [&](int64_t begin, int64_t end) {
    const int64_t stop = CopyRows(table, ids, begin, end, end, {out, table.row_bytes});
    if (stop == end) return;
    int64_t seen = first_bad.load();
    while (stop < seen && !first_bad.compare_exchange_weak(seen, stop)) {
    }
  });
  if (first_bad == kNone) return Status();
  return NoSuchRow(ids[first_bad], first_bad, table.num_rows);
}

#define FE_INSTANTIATE(Id)                                                               \
  template int64_t CopyRows(const TableView&, Span<const Id>, int64_t, int64_t, int64_t, \
                            const RowsOut&);                                             \
  template Status Gather(const CpuExec&, const TableView&, Span<const Id>, char*);
FE_INSTANTIATE(int32_t)
FE_INSTANTIATE(int64_t)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
