#ifndef FUSED_EMBEDDING_CORE_TABLE_ROW_SLAB_H_
#define FUSED_EMBEDDING_CORE_TABLE_ROW_SLAB_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/page_memory.h"
#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

// Numbered rows of one size, in chunks that are never moved. The system allocates the memory of a
// chunk page by page when rows are first written. Not thread-safe.
class RowSlab {
 public:
  explicit RowSlab(int64_t row_bytes = 0);

  int64_t row_bytes() const { return row_bytes_; }
  int64_t size() const { return num_rows_ - num_free_; }
  // Upper bound of row numbers; includes dead rows.
  int64_t num_rows() const { return num_rows_; }
  // Memory that was touched, not merely reserved.
  int64_t memory_bytes() const;
  // Sets the number of rows that is exceeded only temporarily. Rows beyond it, and the last rows
  // below it, which do not fill a huge page, are on small pages. Affects only chunks that are made
  // later.
  void ExpectRows(int64_t num_rows) { expected_rows_ = num_rows; }

  FE_INLINE char* row(int64_t number) const {
    return chunks_[number >> chunk_shift_].data() + (number & chunk_mask_) * row_bytes_;
  }
  FE_INLINE RowHeader* header(int64_t number) const {
    return reinterpret_cast<RowHeader*>(row(number));
  }
  FE_INLINE bool IsAlive(int64_t number) const {
    return number < num_rows_ && header(number)->version != kDeadVersion;
  }

  // Makes room for `num_rows` more rows, so that their Add cannot fail.
  Status Reserve(int64_t num_rows);
  // Adds a row with this key, and returns its number. Reuses dead rows first. The caller writes the
  // other bytes.
  uint32_t Add(int64_t key);
  void Remove(uint32_t number);

  // Changes the size of rows and keeps their numbers; `copy(from, to)` copies a row that is alive.
  template <typename Copy>
  Status Resize(int64_t row_bytes, const Copy& copy) {
    RowSlab resized(row_bytes);
    FE_RETURN_IF_ERROR(resized.Reserve(num_rows_));
    resized.num_rows_ = num_rows_;
    resized.num_free_ = num_free_;
    resized.free_row_ = free_row_;
    resized.expected_rows_ = expected_rows_;
    for (int64_t number = 0; number < num_rows_; ++number) {
      *resized.header(number) = *header(number);
      if (IsAlive(number)) copy(row(number), resized.row(number));
    }
    resized.MoveFirstRows();
    *this = std::move(resized);
    return Status();
  }

 private:
  // Number of rows that the chunks have room for.
  int64_t capacity() const { return static_cast<int64_t>(chunks_.size()) << chunk_shift_; }
  Status AddChunk();
  // Once rows fill the first huge page, moves them from small pages onto it.
  void MoveFirstRows();

  int64_t row_bytes_;
  int chunk_shift_ = 0;  // log2 of the rows of a chunk
  int64_t chunk_mask_ = 0;
  std::vector<PageMemory> chunks_;
  int64_t num_rows_ = 0;
  int64_t num_free_ = 0;
  int64_t expected_rows_ = -1;  // or any number
  int64_t free_row_ = -1;       // the dead row to reuse next; its key is the number of the next one
  bool are_first_rows_moved_ = false;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_ROW_SLAB_H_
