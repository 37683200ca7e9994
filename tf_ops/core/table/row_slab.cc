#include "tf_ops/core/table/row_slab.h"

#include <algorithm>

#include "tf_ops/core/table/hash_index.h"

namespace fused_embedding {
namespace {

// A whole number of huge pages for most sizes of a row, and little address space for small tables.
constexpr int64_t kMinChunkBytes = int64_t{16} << 20;
// What a small table uses is counted in small pages.
constexpr int64_t kSmallBytes = PageMemory::kHugePage;

int64_t WholeHugePages(int64_t bytes) {
  return bytes / PageMemory::kHugePage * PageMemory::kHugePage;
}

}  // namespace

RowSlab::RowSlab(int64_t row_bytes) : row_bytes_(row_bytes) {
  while (row_bytes_ > 0 && (row_bytes_ << chunk_shift_) < kMinChunkBytes) ++chunk_shift_;
  chunk_mask_ = (int64_t{1} << chunk_shift_) - 1;
}

int64_t RowSlab::memory_bytes() const {
  const int64_t bytes = num_rows_ * row_bytes_;
  const bool is_last_small =
      bytes <= kSmallBytes ||
      (expected_rows_ >= 0 && bytes > WholeHugePages(expected_rows_ * row_bytes_));
  return RoundUp(bytes, is_last_small ? PageMemory::kPage : PageMemory::kHugePage);
}

Status RowSlab::Reserve(int64_t num_rows) {
  const int64_t needed = num_rows_ + std::max<int64_t>(0, num_rows - num_free_);
  if (needed >= int64_t{kNoRow}) {
    return ResourceExhausted("a shard of an embedding table holds at most ", kNoRow,
                             " rows; use more shards");
  }
  while (capacity() < needed) FE_RETURN_IF_ERROR(AddChunk());
  MoveFirstRows();
  return Status();
}

void RowSlab::MoveFirstRows() {
  const bool stays_large = expected_rows_ < 0 || expected_rows_ * row_bytes_ >= kSmallBytes;
  if (are_first_rows_moved_ || num_rows_ * row_bytes_ < kSmallBytes || !stays_large) return;
  MoveToHugePages(chunks_[0].data(), chunks_[0].data() + kSmallBytes);
  are_first_rows_moved_ = true;
}

Status RowSlab::AddChunk() {
  const int64_t bytes = row_bytes_ << chunk_shift_;
  const int64_t huge_begin = chunks_.empty() ? kSmallBytes : 0;
  int64_t huge_end = bytes;
  if (expected_rows_ >= 0) {
    const int64_t expected = std::max<int64_t>(0, expected_rows_ - capacity()) * row_bytes_;
    huge_end = std::min(bytes, WholeHugePages(expected));
  }
  PageMemory chunk;
  FE_RETURN_IF_ERROR(PageMemory::Allocate(bytes, huge_begin, huge_end, &chunk));
  chunks_.push_back(std::move(chunk));
  return Status();
}

uint32_t RowSlab::Add(int64_t key) {
  // The row that comes next is asked for while this one is filled.
  constexpr int64_t kAhead = 4;
  int64_t number = free_row_;
  if (number < 0) {
    number = num_rows_++;
    if (((number + kAhead) & chunk_mask_) >= kAhead) PrefetchRow(row(number + kAhead), row_bytes_);
  } else {
    free_row_ = header(number)->key;
    --num_free_;
    if (free_row_ >= 0) PrefetchRow(row(free_row_), row_bytes_);
  }
  *header(number) = {key, 0, 0};
  return static_cast<uint32_t>(number);
}

void RowSlab::Remove(uint32_t number) {
  *header(number) = {free_row_, 0, kDeadVersion};
  free_row_ = number;
  ++num_free_;
}

}  // namespace fused_embedding
