#ifndef FUSED_EMBEDDING_CORE_BASE_PAGE_MEMORY_H_
#define FUSED_EMBEDDING_CORE_BASE_PAGE_MEMORY_H_

#include <cstdint>
#include <utility>

#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// The next multiple of `unit`.
constexpr int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Owns zeroed memory, aligned to a cache line. Blocks from 2 MiB on come from the system untouched,
// and lie on huge pages: a random access then seldom waits for a page table as well, which doubles
// the rate of finds.
class PageMemory {
 public:
  static constexpr int64_t kPage = 4096;
  static constexpr int64_t kHugePage = int64_t{2} << 20;

  PageMemory() = default;
  PageMemory(PageMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PageMemory& operator=(PageMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PageMemory();

  // Huge pages from byte `huge_begin`, a multiple of 2 MiB, to `huge_end`: of a huge page of which
  // little is used, all is taken.
  static Status Allocate(int64_t bytes, int64_t huge_begin, int64_t huge_end, PageMemory* memory);

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Moves memory [begin, end), which was written to, onto huge pages. A page takes about a
// millisecond. A huge page that is shared with the memory before or after is moved as well if most
// of it is in use. After a refusal by the system the rest is left to the system's own thread.
// Returns how many of the bytes were moved.
int64_t MoveToHugePages(char* begin, char* end);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_PAGE_MEMORY_H_
