#include "tf_ops/core/base/huge_pages.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

constexpr int64_t kPage = int64_t{2} << 20;
constexpr int64_t kBytes = 4 * kPage;

struct Free {
  void operator()(char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, Free>;

// Written to, not aligned to a huge page: as TensorFlow's allocator has it.
Memory NewBuffer() {
  Memory memory(static_cast<char*>(std::aligned_alloc(64, kBytes)));
  std::memset(memory.get(), 7, kBytes);
  return memory;
}

bool HasHugePages() {
  std::string modes;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), modes);
  return modes.find("[never]") == std::string::npos && !modes.empty();
}

TEST(HugePages, MovesTheWholePagesInsideABufferOnce) {
  if (!HasHugePages()) GTEST_SKIP() << "this system has no transparent huge pages";
  const Memory memory = NewBuffer();
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
  const Memory memory = NewBuffer();
  HugePages pages(true);
  pages.Use(memory.get(), HugePages::kMinBytes - 1);
  pages.Use(nullptr, 0);
  pages.Wait();
  EXPECT_EQ(pages.moved_bytes() + pages.refused_bytes(), 0);
}

TEST(HugePages, DoesNothingWhenOff) {
  const Memory memory = NewBuffer();
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
  const Memory memory = NewBuffer();
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
    const Memory memory = NewBuffer();
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
