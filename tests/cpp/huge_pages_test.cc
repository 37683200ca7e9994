#include "tf_ops/core/base/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/cpp/core_testing.h"
#include "tests/cpp/page_memory_testing.h"

namespace fused_embedding {
namespace {

constexpr int64_t kPage = PageMemory::kHugePage;
constexpr int64_t kSmallPage = PageMemory::kPage;
constexpr int64_t kBytes = 4 * kPage;

// Not aligned to a huge page, as TensorFlow's allocator has it, and written to. Not malloc's: what
// is freed there changes where it takes memory from in later tests.
class Memory {
 public:
  explicit Memory(int64_t used_bytes = kBytes)
      : mapped_(static_cast<char*>(mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::memset(get(), 7, static_cast<size_t>(used_bytes));
  }
  Memory(const Memory&) = delete;
  ~Memory() { munmap(mapped_, kMappedBytes); }

  // Byte 64 of a huge page.
  char* get() const {
    const auto address = reinterpret_cast<uintptr_t>(mapped_);
    return mapped_ + (kPage - static_cast<int64_t>(address % uint64_t{kPage})) + 64;
  }

  // Of the huge page at get(), how much is in memory.
  int64_t BytesInMemory() const {
    std::vector<unsigned char> flags(kPage / kSmallPage);
    EXPECT_EQ(mincore(get() - 64, kPage, flags.data()), 0);
    return kSmallPage * std::count_if(flags.begin(), flags.end(),
                                      [](unsigned char flag) { return (flag & 1) != 0; });
  }

 private:
  static constexpr int64_t kMappedBytes = kBytes + 2 * kPage;

  char* mapped_;
};

TEST(HugePages, MovesABufferOnce) {
  const Memory memory;
  HugePages pages(true);
  pages.Use(memory.get(), kBytes);
  pages.Wait();
  EXPECT_EQ(pages.moved_bytes() + pages.refused_bytes(), kBytes);
  pages.Use(memory.get(), kBytes);
  pages.Wait();
  EXPECT_EQ(pages.moved_bytes() + pages.refused_bytes(), kBytes);
  for (int64_t i = 0; i < kBytes; i += kSmallPage) ASSERT_EQ(memory.get()[i], 7);
}

TEST(HugePages, MovesThePagesThatBuffersFillTogether) {
  if (!MovesPages()) GTEST_SKIP() << "this system does not move pages to huge ones";
  const Memory memory;
  HugePages pages(true);
  constexpr int64_t kTable = 3 * kPage / 8;  // ten of them and a bit
  for (int64_t i = 0; i < kBytes / kTable; ++i) pages.Use(memory.get() + i * kTable, kTable);
  pages.Wait();
  EXPECT_EQ(pages.moved_bytes(), kBytes / kTable * kTable);
  for (int64_t i = 0; i < kBytes; i += kSmallPage) ASSERT_EQ(memory.get()[i], 7);
}

TEST(HugePages, LeavesAPageThatIsLittleUsed) {
  constexpr int64_t kTable = kPage / 2;
  const Memory memory(kTable);
  const int64_t used = memory.BytesInMemory();
  HugePages pages(true);
  pages.Use(memory.get(), kTable);
  pages.Wait();
  EXPECT_EQ(pages.moved_bytes(), 0);
  EXPECT_EQ(pages.refused_bytes(), kTable);
  EXPECT_EQ(memory.BytesInMemory(), used);
}

// What shares a page with a buffer may be anything.
TEST(HugePages, LeavesAPageOfWhichPartIsForOtherUses) {
  constexpr int64_t kTable = kPage / 2;
  const Memory memory;
  ASSERT_EQ(mprotect(memory.get() - 64 + kTable + kSmallPage, kTable, PROT_NONE), 0);
  HugePages pages(true);
  pages.Use(memory.get(), kTable);
  pages.Wait();
  EXPECT_EQ(pages.moved_bytes(), 0);
  EXPECT_EQ(pages.refused_bytes(), kTable);
  for (int64_t i = 0; i < kTable; i += kSmallPage) ASSERT_EQ(memory.get()[i], 7);
}

TEST(HugePages, LeavesSmallBuffers) {
  const Memory memory;
  HugePages pages(true);
  pages.Use(memory.get(), HugePages::kMinBytes - 1);
  pages.Use(nullptr, 0);
  pages.Wait();
  EXPECT_EQ(pages.moved_bytes() + pages.refused_bytes(), 0);
}

TEST(HugePages, DoesNothingWhenOff) {
  const Memory memory;
  HugePages pages(false);
  pages.Use(memory.get(), kBytes);
  pages.Wait();
  EXPECT_EQ(pages.moved_bytes() + pages.refused_bytes(), 0);
}

TEST(HugePages, CountsWhatIsRefused) {
  HugePages pages(true);
  // No memory is mapped there.
  pages.Use(reinterpret_cast<const void*>(uintptr_t{1} << 46), kBytes);
  pages.Wait();
  EXPECT_EQ(pages.moved_bytes(), 0);
  EXPECT_EQ(pages.refused_bytes(), kBytes);
}

TEST(HugePages, MovesABufferOfSeveralThreadsOnce) {
  const Memory memory;
  HugePages pages(true);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { pages.Use(memory.get(), kBytes); });
  }
  for (std::thread& thread : threads) thread.join();
  pages.Wait();
  EXPECT_LE(pages.moved_bytes() + pages.refused_bytes(), kBytes);
}

// More buffers than it remembers: each is still tried, and none is lost.
TEST(HugePages, MayBeFreedMeanwhile) {
  HugePages pages(true);
  for (int i = 0; i < 20; ++i) {
    const Memory memory;
    pages.Use(memory.get(), kBytes - i * kSmallPage);
  }
  pages.Wait();
  EXPECT_GT(pages.moved_bytes() + pages.refused_bytes(), 0);
}

TEST(HugePages, ForgetsWhatItHasNoRoomFor) {
  HugePages pages(true);
  constexpr int64_t kBuffers = 20'000;
  for (int64_t i = 0; i < kBuffers; ++i) {
    pages.Use(reinterpret_cast<const void*>((uintptr_t{1} << 46) + (uintptr_t{1} << 24) * i),
              kBytes);
  }
  pages.Wait();
  EXPECT_EQ(pages.refused_bytes(), kBuffers * kBytes);
}

}  // namespace
}  // namespace fused_embedding
