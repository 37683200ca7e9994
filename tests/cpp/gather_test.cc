#include "tf_ops/core/lookup/stages/gather.h"

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

template <typename Id>
class GatherIds : public ::testing::Test {};
using IdTypes = ::testing::Types<int32_t, int64_t>;
TYPED_TEST_SUITE(GatherIds, IdTypes);

TYPED_TEST(GatherIds, CopiesRowsOfAnySize) {
  Random random(17);
  constexpr int64_t kNumRows = 50, kNumIds = 300;
  for (const int64_t row_bytes : {1, 2, 4, 30, 32, 36, 64, 100, 128, 252, 256, 260, 512, 1000}) {
    const Array<char> table = RandomBytes(&random, kNumRows * row_bytes);
    Array<TypeParam> ids(kNumIds);
    std::string want;
    for (int64_t i = 0; i < kNumIds; ++i) {
      ids[i] = static_cast<TypeParam>(RandomInt(&random, 0, kNumRows - 1));
      want.append(table.span().data + ids[i] * row_bytes, static_cast<size_t>(row_bytes));
    }
    for (const int num_threads : kThreadCounts) {
      Array<char> out(kNumIds * row_bytes);
      ASSERT_TRUE(IsOk(Gather<TypeParam>(ThreadedExec(num_threads),
                                         {table.span().data, kNumRows, row_bytes}, ids.view(),
                                         out.data())));
      EXPECT_EQ(out.bytes(), want) << row_bytes << " bytes, " << num_threads << " threads";
    }
  }
}

TYPED_TEST(GatherIds, NamesTheFirstBadIdForAnyNumberOfThreads) {
  using Limits = std::numeric_limits<TypeParam>;
  const Array<char> table(10 * 32);
  for (const TypeParam bad : {TypeParam{10}, TypeParam{-1}, Limits::max(), Limits::min()}) {
    Array<TypeParam> ids(500, 3);
    ids[123] = bad;
    ids[124] = ids[400] = -5;
    const std::string name = "id " + std::to_string(bad) + " at position 123";
    for (const int num_threads : kThreadCounts) {
      Array<char> out(500 * 32);
      EXPECT_TRUE(IsInvalid(Gather<TypeParam>(ThreadedExec(num_threads),
                                              {table.span().data, 10, 32}, ids.view(), out.data()),
                            {name.c_str(), "[0, 10)"}));
    }
  }
}

TYPED_TEST(GatherIds, TakesNoIdsNoRowsAndNoBytes) {
  EXPECT_TRUE(IsOk(Gather<TypeParam>(SerialExec(), {nullptr, 0, 16}, {}, nullptr)));
  const Array<TypeParam> ids = {0, 1};
  // Empty tensors have no memory.
  EXPECT_TRUE(IsOk(Gather<TypeParam>(SerialExec(), {nullptr, 2, 0}, ids.view(), nullptr)));
  EXPECT_TRUE(IsInvalid(Gather<TypeParam>(SerialExec(), {nullptr, 1, 0}, ids.view(), nullptr),
                        {"id 1 at position 1"}));
  EXPECT_TRUE(IsInvalid(Gather<TypeParam>(SerialExec(), {nullptr, 0, 16}, ids.view(), nullptr),
                        {"id 0 at position 0", "[0, 0)"}));
}

}  // namespace
}  // namespace fused_embedding
