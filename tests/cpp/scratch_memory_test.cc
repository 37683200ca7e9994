#include "tf_ops/core/base/scratch_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/base/buffer.h"

namespace fused_embedding {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;

// Writes all of a block, as one that is too small would not survive.
void* AllocateAndFill(ScratchMemory* scratch, int64_t bytes) {
  void* const memory = scratch->Allocate(bytes);
  EXPECT_NE(memory, nullptr);
  std::memset(memory, 0xab, static_cast<size_t>(bytes));
  return memory;
}

TEST(ScratchMemory, GivesOutAgainWhatWasFreed) {
  if (IsAddressSanitized()) GTEST_SKIP() << "nothing is kept under the address sanitizer";
  ScratchMemory scratch;
  void* const first = AllocateAndFill(&scratch, 100 * kKiB);
  EXPECT_EQ(scratch.kept_bytes(), 0);
  scratch.Free(first, 100 * kKiB);
  const int64_t kept = scratch.kept_bytes();
  EXPECT_GE(kept, 100 * kKiB);
  EXPECT_LE(kept, 125 * kKiB);
  // A batch of about that size.
  void* const second = AllocateAndFill(&scratch, 101 * kKiB);
  EXPECT_EQ(second, first);
  EXPECT_EQ(scratch.kept_bytes(), 0);
  void* const third = AllocateAndFill(&scratch, 101 * kKiB);
  EXPECT_NE(third, second);
  scratch.Free(second, 101 * kKiB);
  scratch.Free(third, 101 * kKiB);
  EXPECT_EQ(scratch.kept_bytes(), 2 * kept);
}

TEST(ScratchMemory, BlocksHoldWhatWasAskedForAtAllSizes) {
  ScratchMemory scratch;
  for (int64_t power = 11; power <= 24; ++power) {
    for (const int64_t offset : {-1, 0, 1, 777}) {
      for (int64_t quarter = 4; quarter < 8; ++quarter) {
        const int64_t bytes = (int64_t{1} << (power - 2)) * quarter + offset;
        void* const memory = AllocateAndFill(&scratch, bytes);
        const int64_t before = scratch.kept_bytes();
        scratch.Free(memory, bytes);
        const int64_t block = scratch.kept_bytes() - before;
        const bool is_kept = !IsAddressSanitized() && bytes >= 4096;
        EXPECT_GE(block, is_kept ? bytes : 0) << bytes;
        EXPECT_LE(block, is_kept ? bytes + bytes / 4 + 1 : 0) << bytes;
        if (is_kept) {  // it is found where it was put
          EXPECT_EQ(scratch.Allocate(bytes), memory) << bytes;
          scratch.Free(memory, bytes);
        }
        scratch.Release();
      }
    }
  }
}

TEST(ScratchMemory, KeepsNoMoreThanItsLimit) {
  ScratchMemory scratch;
  std::vector<void*> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(scratch.Allocate(48 * kMiB));
  for (void* const block : blocks) {
    scratch.Free(block, 48 * kMiB);
    EXPECT_LE(scratch.kept_bytes(), ScratchMemory::kMaxKeptBytes);
  }
  EXPECT_EQ(scratch.kept_bytes() > 0, !IsAddressSanitized());
  scratch.Release();
  EXPECT_EQ(scratch.kept_bytes(), 0);
  // What is too large for every step is not kept at all.
  scratch.Free(scratch.Allocate(80 * kMiB), 80 * kMiB);
  EXPECT_EQ(scratch.kept_bytes(), 0);
}

TEST(ScratchMemory, ThreadsShareIt) {
  ScratchMemory scratch;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&scratch, t] {
      for (int64_t i = 0; i < 2000; ++i) {
        const int64_t bytes = 4 * kKiB + 997 * (i % 37);
        auto* const memory = static_cast<unsigned char*>(scratch.Allocate(bytes));
        std::memset(memory, t, static_cast<size_t>(bytes));
        ASSERT_EQ(memory[bytes - 1], t);
        ASSERT_EQ(memory[bytes / 2], t);
        scratch.Free(memory, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ScratchMemory, BuffersComeFromIt) {
  if (IsAddressSanitized()) GTEST_SKIP() << "nothing is kept under the address sanitizer";
  ScratchMemory::Global().Release();
  Buffer<int64_t> buffer;
  ASSERT_TRUE(buffer.Allocate(4096).ok());
  ASSERT_TRUE(buffer.Allocate(0).ok());
  EXPECT_GE(ScratchMemory::Global().kept_bytes(), 4096 * 8);
}

}  // namespace
}  // namespace fused_embedding
