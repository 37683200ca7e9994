#include "tests/cpp/cuda_testing.h"
#include "tf_ops/core/lookup/stages/gather.h"

namespace fused_embedding {
namespace {

template <typename Id>
class CudaGather : public GpuTest {};
using IdTypes = ::testing::Types<int32_t, int64_t>;
TYPED_TEST_SUITE(CudaGather, IdTypes);

TYPED_TEST(CudaGather, CopiesRowsOfAnySizeAndGivesZerosForOtherIds) {
  Random random(17);
  constexpr int64_t kNumRows = 50, kNumIds = 333;
  for (const int64_t row_bytes : {1, 2, 4, 30, 32, 36, 64, 100, 128, 252, 256, 260, 512, 1000}) {
    const Array<char> table = RandomBytes(&random, kNumRows * row_bytes);
    Array<TypeParam> ids(kNumIds);
    std::string want;
    for (int64_t i = 0; i < kNumIds; ++i) {
      ids[i] = static_cast<TypeParam>(RandomInt(&random, -2, kNumRows + 1));
      const size_t bytes = static_cast<size_t>(row_bytes);
      if (ids[i] < 0 || ids[i] >= kNumRows) {
        want.append(bytes, '\0');
      } else {
        want.append(table.span().data + ids[i] * row_bytes, bytes);
      }
    }
    const DeviceArray<char> device_table(table);
    const DeviceArray<TypeParam> device_ids(ids);
    for (const uint64_t seed : OrderSeeds()) {
      ShuffleOrder(seed);
      const DeviceArray<char> out(kNumIds * row_bytes);
      ASSERT_TRUE(IsOk(Gather<TypeParam>(this->gpu, {device_table.data(), kNumRows, row_bytes},
                                         device_ids.view(), out.data())));
      EXPECT_EQ(out.ToHost().bytes(), want) << row_bytes << " bytes, order " << seed;
    }
  }
}

// A tensor may begin anywhere: vectors must not be wider than its alignment.
TYPED_TEST(CudaGather, TakesMemoryThatIsNotAligned) {
  Random random(18);
  constexpr int64_t kRowBytes = 32;
  const Array<char> table = RandomBytes(&random, 2 * kRowBytes + 16);
  const DeviceArray<char> device_table(table);
  const DeviceArray<TypeParam> ids(Array<TypeParam>{1, 0});
  for (const int64_t shift : {1, 2, 4, 8, 16}) {
    const DeviceArray<char> out(2 * kRowBytes);
    ASSERT_TRUE(IsOk(Gather<TypeParam>(this->gpu, {device_table.data() + shift, 2, kRowBytes},
                                       ids.view(), out.data())));
    const char* rows = table.span().data + shift;
    EXPECT_EQ(out.ToHost().bytes(),
              std::string(rows + kRowBytes, kRowBytes) + std::string(rows, kRowBytes))
        << shift;
  }
}

TYPED_TEST(CudaGather, CheckNamesTheFirstBadId) {
  using Limits = std::numeric_limits<TypeParam>;
  for (const TypeParam bad : {TypeParam{10}, TypeParam{-1}, Limits::max(), Limits::min()}) {
    Array<TypeParam> ids(5000, 3);
    EXPECT_TRUE(IsOk(CheckIds(this->gpu, 10, DeviceArray<TypeParam>(ids).view())));
    ids[123] = bad;
    ids[124] = ids[4000] = -5;
    const std::string name = "id " + std::to_string(bad) + " at position 123";
    const DeviceArray<TypeParam> device_ids(ids);
    for (const uint64_t seed : OrderSeeds()) {
      ShuffleOrder(seed);
      EXPECT_TRUE(IsInvalid(CheckIds(this->gpu, 10, device_ids.view()), {name.c_str(), "[0, 10)"}));
    }
  }
  EXPECT_TRUE(IsOk(CheckIds<TypeParam>(this->gpu, 0, {})));
}

TYPED_TEST(CudaGather, TakesNoIdsNoRowsAndNoBytes) {
  EXPECT_TRUE(IsOk(Gather<TypeParam>(this->gpu, {nullptr, 0, 16}, {}, nullptr)));
  const DeviceArray<TypeParam> ids(Array<TypeParam>{0, 1});
  EXPECT_TRUE(IsOk(Gather<TypeParam>(this->gpu, {nullptr, 2, 0}, ids.view(), nullptr)));
  const DeviceArray<char> out(2 * 16);
  EXPECT_TRUE(IsOk(Gather<TypeParam>(this->gpu, {nullptr, 0, 16}, ids.view(), out.data())));
  EXPECT_EQ(out.ToHost().bytes(), std::string(2 * 16, '\0'));
}

}  // namespace
}  // namespace fused_embedding
