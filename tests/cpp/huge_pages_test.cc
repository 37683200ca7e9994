#include "tf_ops/core/base/huge_pages.h"

#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

constexpr int64_t kPage = int64_t{2} << 20;
constexpr int64_t kBytes = 4 * kPage;

constexpr int64_t kMappedBytes = kBytes + 4096;

// Written to, and not aligned to a huge page, as TensorFlow's allocator has it. Not malloc's: what
// is freed there changes where it takes memory from in later tests.
class Memory {
 public:
  Memory()
      : mapped_(static_cast<char*>(mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::memset(get(), 7, kBytes);
  }
  Memory(const Memory&) = delete;
  ~Memory() { munmap(mapped_, kMappedBytes); }

  char* get() const { return mapped_ + 64; }

 private:
  char* mapped_;
};

bool HasHugePages() {
  std::string modes;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), modes);
  return modes.find("[never]") == std::string::npos && !modes.empty();
}

TEST(HugePages, MovesTheWholePagesInsideABufferOnce) {
  if (!HasHugePages()) GTEST_SKIP() << "this system has no transparent huge pages";
  const Memory memory;
  HugePages pages(true);
  pages.Use(memory.get(), kBytes);
  pages.Wait();
  const int64_t tried = pages.moved_bytes() + pages.refused_bytes();
  EXPECT_TRUE(tried == kBytes || tried == kBytes - kPage) << tried;
  pages.Use(memory.get(), kBytes);
  pages.Wait();
  EXPECT_EQ(pages.moved_bytes() + pages.refused_bytes(), tried);
  for (int64_t i = 0; i < kBytes; i += 4096) ASSERT_EQ(memory.get()[i], 7);
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
    pages.Use(memory.get(), kBytes - i * 4096);
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
