#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/unique_testing.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/lookup/stages/unique.h"

namespace fused_embedding {
namespace {

template <typename Id, typename Index>
UniqueResult<Id, Index> Unique(const GpuExec& gpu, const std::vector<Id>& ids) {
  const DeviceArray<Id> in(Array<Id>::Of(ids));
  const int64_t num_waits = NumWaits();
  GpuUniquePlan plan;
  EXPECT_TRUE(IsOk((PlanUnique<Id, Index>(gpu, in.view(), &plan))));
  const DeviceArray<Index> idx(in.size());
  const DeviceArray<Id> unique_ids(plan.num_unique);
  const DeviceArray<Index> counts(plan.num_unique);
  EXPECT_TRUE(IsOk((
      RunUnique<Id, Index>(gpu, in.view(), plan, {idx.span(), unique_ids.span(), counts.span()}))));
  EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
  return {unique_ids.ToHost().values(), idx.ToHost().values(), counts.ToHost().values()};
}

template <typename IdAndIndex>
class CudaUnique : public GpuTest {};
TYPED_TEST_SUITE(CudaUnique, IdAndIndexTypes);
using CudaUniqueInt64 = GpuTest;

TYPED_TEST(CudaUnique, DoesTheExampleOfTheHeader) {
  using Id = typename TypeParam::first_type;
  using Index = typename TypeParam::second_type;
  const auto result = Unique<Id, Index>(this->gpu, {7, 3, 7, 9});
  EXPECT_EQ(result.ids, (std::vector<Id>{7, 3, 9}));
  EXPECT_EQ(result.idx, (std::vector<Index>{0, 1, 0, 2}));
  EXPECT_EQ(result.counts, (std::vector<Index>{2, 1, 1}));
}

TYPED_TEST(CudaUnique, EveryValueIsALegalId) {
  using Id = typename TypeParam::first_type;
  using Index = typename TypeParam::second_type;
  using Limits = std::numeric_limits<Id>;
  std::vector<Id> ids = {Limits::min(), -1, 0, Limits::max(), -1, Limits::min(), 1, 0};
  EXPECT_TRUE((Unique<Id, Index>(this->gpu, ids) == NaiveUnique<Id, Index>(ids)));
}

TYPED_TEST(CudaUnique, IsTheSameInAnyOrderOfThreads) {
  using Id = typename TypeParam::first_type;
  using Index = typename TypeParam::second_type;
  Random random(11);
  for (const int64_t size : {0, 1, 255, 256, 1000, 50001}) {
    for (const int64_t range : {1, 10, 3000, 1000000000}) {
      std::vector<Id> ids;
      for (int64_t i = 0; i < size; ++i) {
        ids.push_back(static_cast<Id>(RandomInt(&random, -range, range)));
      }
      const auto want = NaiveUnique<Id, Index>(ids);
      for (const uint64_t seed : OrderSeeds()) {
        ShuffleOrder(seed);
        EXPECT_TRUE((Unique<Id, Index>(this->gpu, ids) == want))
            << size << " ids up to " << range << ", order " << seed;
      }
    }
  }
}

// Ids that start in one slot of the hash table.
TEST_F(CudaUniqueInt64, IsRightWhereAllHashesCollide) {
  std::vector<int64_t> ids;
  for (uint64_t i = 0; i < 1500; ++i) {
    ids.push_back(static_cast<int64_t>(InverseMix64((i % 300) << 44)));
  }
  for (const uint64_t seed : OrderSeeds()) {
    ShuffleOrder(seed);
    EXPECT_TRUE((Unique<int64_t, int32_t>(gpu, ids) == NaiveUnique<int64_t, int32_t>(ids)));
  }
}

TEST_F(CudaUniqueInt64, RefusesMoreIdsThanTheIndexCounts) {
  const int64_t size = int64_t{1} << 31;  // not read: refused before
  const Span<const int64_t> ids{nullptr, size};
  GpuUniquePlan plan;
  EXPECT_TRUE(IsInvalid((PlanUnique<int64_t, int32_t>(gpu, ids, &plan)),
                        {"2147483648", "32-bit", "CounterType=int64"}));
  EXPECT_TRUE(
      IsInvalid((PlanUnique<int64_t, int64_t>(gpu, ids, &plan)), {"2147483648", "smaller batch"}));
}

}  // namespace
}  // namespace fused_embedding
