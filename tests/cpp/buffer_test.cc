#include "tf_ops/core/base/buffer.h"

#include "tests/cpp/core_testing.h"

// A refused allocation is a null pointer under the sanitizers too, as it is for users.
extern "C" __attribute__((used, visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" __attribute__((used, visibility("default"))) const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace fused_embedding {
namespace {

TEST(Buffer, HoldsWhatWasAllocated) {
  Buffer<int64_t> buffer;
  EXPECT_EQ(buffer.size(), 0);
  EXPECT_TRUE(buffer.span().empty());
  ASSERT_TRUE(IsOk(buffer.Allocate(3)));
  ASSERT_EQ(buffer.size(), 3);
  for (int64_t i = 0; i < 3; ++i) buffer[i] = 10 * i;
  EXPECT_EQ(buffer.data()[2], 20);
  const Buffer<int64_t>& view = buffer;
  EXPECT_EQ(view.span()[1], 10);
}

TEST(Buffer, AllocatesAnewAndNothing) {
  Buffer<char> buffer;
  ASSERT_TRUE(IsOk(buffer.Allocate(100)));
  ASSERT_TRUE(IsOk(buffer.Allocate(5)));
  EXPECT_EQ(buffer.size(), 5);
  ASSERT_TRUE(IsOk(buffer.Allocate(0)));
  EXPECT_EQ(buffer.size(), 0);
}

TEST(Buffer, RefusesWhatNoMachineHas) {
  Buffer<int64_t> buffer;
  for (const int64_t size :
       {int64_t{1} << 58, int64_t{1} << 60, (int64_t{1} << 61) + 1, kInt64Max}) {
    ASSERT_TRUE(IsOk(buffer.Allocate(4)));
    EXPECT_TRUE(Fails(buffer.Allocate(size), StatusCode::kResourceExhausted,
                      {"elements of 8 bytes", std::to_string(size).c_str(), "smaller batch"}));
    EXPECT_EQ(buffer.size(), 0) << "the old memory is gone, and must not look usable";
  }
}

TEST(Buffer, RefusesSizesThatOverflowed) {
  Buffer<int32_t> buffer;
  for (const int64_t size : {int64_t{-1}, kInt64Min, kInt64Min + 1, -(int64_t{1} << 62)}) {
    EXPECT_TRUE(Fails(buffer.Allocate(size), StatusCode::kResourceExhausted, {}));
    EXPECT_EQ(buffer.size(), 0);
  }
}

}  // namespace
}  // namespace fused_embedding
