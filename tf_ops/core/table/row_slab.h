#ifndef FUSED_EMBEDDING_CORE_TABLE_ROW_SLAB_H_
#define FUSED_EMBEDDING_CORE_TABLE_ROW_SLAB_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/page_memory.h"
#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

// Rows of one size by number, in chunks that are never moved. The system gives a chunk its memory
// page by page when rows are first written. Not thread-safe.
class RowSlab {
 public:
  explicit RowSlab(int64_t row_bytes = 0);

  int64_t row_bytes() const { return row_bytes_; }
  int64_t size() const { return num_rows_ - num_free_; }
  // Rows are numbered below it, dead ones among them.
  int64_t num_rows() const { return num_rows_; }
  // Touched, not reserved.
  int64_t memory_bytes() const;
  // How many rows there may be, but for a while: those beyond, and the last ones, which do not fill
  // a huge page, lie on small pages. For chunks that are not made yet.
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

  // Makes room for `num_rows` more. Add then cannot fail.
  Status Reserve(int64_t num_rows);
  // The number of a new row with this key, its other bytes to be written. Dead rows are used first.
  uint32_t Add(int64_t key);
  void Remove(uint32_t number);

  // Rows with the same numbers and other sizes; `copy(from, to)` moves one that is alive.
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
    *this = std::move(resized);
    return Status();
  }

 private:
  // Rows that the chunks have room for.
  int64_t capacity() const { return static_cast<int64_t>(chunks_.size()) << chunk_shift_; }
  Status AddChunk();

  int64_t row_bytes_;
  int chunk_shift_ = 0;  // log2 of the rows of a chunk
  int64_t chunk_mask_ = 0;
  std::vector<PageMemory> chunks_;
  int64_t num_rows_ = 0;
  int64_t num_free_ = 0;
  int64_t expected_rows_ = -1;  // or any number
  int64_t free_row_ = -1;  // the dead row used next, whose key is the number of the one after it
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_ROW_SLAB_H_
