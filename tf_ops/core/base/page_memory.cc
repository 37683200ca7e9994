#include "tf_ops/core/base/page_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace fused_embedding {
namespace {

constexpr int64_t kCacheLine = 64;
constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1; older headers lack it

bool IsMapped(int64_t bytes) { return bytes >= PageMemory::kHugePage; }

// Huge pages lie at multiples of their size: maps one more, and gives back what sticks out.
char* MapAligned(int64_t bytes) {
  const int64_t mapped = bytes + PageMemory::kHugePage;
  void* memory = mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(memory);
  const int64_t address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin));
  const int64_t head = RoundUp(address, PageMemory::kHugePage) - address;
  if (head > 0) munmap(begin, static_cast<size_t>(head));
  const int64_t tail = mapped - head - bytes;
  if (tail > 0) munmap(begin + head + bytes, static_cast<size_t>(tail));
  return begin + head;
}

#if defined(MADV_HUGEPAGE)
// The huge page that has the address in it.
char* HugePageOf(char* address) {
  return address - reinterpret_cast<uintptr_t>(address) % uintptr_t{PageMemory::kHugePage};
}

// Whether at least three quarters of a huge page are in memory. A move adds the rest to the memory
// of the process.
bool IsMostlyInUse(char* page) {
  std::array<unsigned char, PageMemory::kHugePage / PageMemory::kPage> small_pages;
  if (mincore(page, PageMemory::kHugePage, small_pages.data()) != 0) return false;
  const auto num_used = std::count_if(small_pages.begin(), small_pages.end(),
                                      [](unsigned char flags) { return (flags & 1) != 0; });
  return num_used >= static_cast<int64_t>(small_pages.size()) * 3 / 4;
}
#endif

}  // namespace

PageMemory::~PageMemory() {
  if (data_ == nullptr) return;
  if (IsMapped(bytes_)) {
    munmap(data_, static_cast<size_t>(bytes_));
  } else {
    std::free(data_);
  }
}

Status PageMemory::Allocate(int64_t bytes, int64_t huge_begin, int64_t huge_end,
                            PageMemory* memory) {
  constexpr int64_t kMaxBytes = int64_t{1} << 46;
  PageMemory block;
  if (bytes > 0 && bytes <= kMaxBytes) {
    block.bytes_ = RoundUp(bytes, IsMapped(bytes) ? kPage : kCacheLine);
    const size_t size = static_cast<size_t>(block.bytes_);
    if (IsMapped(bytes)) {
      block.data_ = MapAligned(block.bytes_);
    } else {
      block.data_ = static_cast<char*>(std::aligned_alloc(kCacheLine, size));
      if (block.data_ != nullptr) std::memset(block.data_, 0, size);
    }
  }
  if (block.data_ == nullptr) {
    return ResourceExhausted("cannot allocate ", bytes, " bytes for an embedding table");
  }
#if defined(MADV_HUGEPAGE)
  // Advice: a system without huge pages is slower and right.
  if (IsMapped(bytes) && huge_end > huge_begin) {
    madvise(block.data_ + huge_begin, static_cast<size_t>(huge_end - huge_begin), MADV_HUGEPAGE);
  }
#endif
  *memory = std::move(block);
  return Status();
}

int64_t MoveToHugePages(char* begin, char* end) {
  int64_t moved = 0;
#if defined(MADV_HUGEPAGE)
  constexpr int64_t kPage = PageMemory::kHugePage;
  bool is_refused = false;  // once: each further try may search long for memory, in vain
  for (char* page = HugePageOf(begin); page < end; page += kPage) {
    const bool is_shared = page < begin || end - page < kPage;
    if (is_shared && !IsMostlyInUse(page)) continue;
    if (!is_refused && madvise(page, kPage, kCollapse) == 0) {
      moved += std::min(end, page + kPage) - std::max(begin, page);
      continue;
    }
    is_refused |= !is_shared && errno != EAGAIN;
    madvise(page, kPage, MADV_HUGEPAGE);  // for the system's thread: some megabytes a second
  }
#endif
  return moved;
}

}  // namespace fused_embedding
