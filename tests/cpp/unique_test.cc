#include "tf_ops/core/lookup/stages/unique.h"

#include "tests/cpp/unique_testing.h"
#include "tf_ops/core/base/hash.h"

namespace fused_embedding {
namespace {

template <typename Id, typename Index = int32_t>
UniqueResult<Id, Index> Unique(const CpuExec& exec, const std::vector<Id>& ids) {
  const Array<Id> in = Array<Id>::Of(ids);
  Array<Index> idx(in.size(), -7);
  UniquePlan<Id> plan;
  EXPECT_TRUE(IsOk((PlanUnique<Id, Index>(exec, in.view(), idx.span(), &plan))));
  Array<Id> unique_ids(plan.num_unique);
  Array<Index> counts(plan.num_unique, 99);
  RunUnique<Id, Index>(plan, idx.view(), unique_ids.span(), counts.span());
  return {unique_ids.values(), idx.values(), counts.values()};
}

template <typename IdAndIndex>
class UniqueTypes : public ::testing::Test {};
TYPED_TEST_SUITE(UniqueTypes, IdAndIndexTypes);

TYPED_TEST(UniqueTypes, DoesTheExampleOfTheHeader) {
  using Id = typename TypeParam::first_type;
  using Index = typename TypeParam::second_type;
  const auto result = Unique<Id, Index>(SerialExec(), {7, 3, 7, 9});
  EXPECT_EQ(result.ids, (std::vector<Id>{7, 3, 9}));
  EXPECT_EQ(result.idx, (std::vector<Index>{0, 1, 0, 2}));
  EXPECT_EQ(result.counts, (std::vector<Index>{2, 1, 1}));
}

TYPED_TEST(UniqueTypes, EveryValueIsALegalId) {
  using Id = typename TypeParam::first_type;
  using Index = typename TypeParam::second_type;
  using Limits = std::numeric_limits<Id>;
  std::vector<Id> ids = {Limits::min(), -1, 0, Limits::max(), -1, Limits::min(), 1, 0};
  EXPECT_TRUE((Unique<Id, Index>(SerialExec(), ids) == NaiveUnique<Id, Index>(ids)));
}

// Lengths about kMinParallelIds = 32768, from which on threads share the work.
TYPED_TEST(UniqueTypes, IsTheSameForAnyNumberOfThreads) {
  using Id = typename TypeParam::first_type;
  using Index = typename TypeParam::second_type;
  Random random(11);
  for (const int64_t size : {0, 1, 1000, 32767, 32768, 50001}) {
    for (const int64_t range : {1, 10, 30000, 1000000000}) {
      std::vector<Id> ids;
      for (int64_t i = 0; i < size; ++i) {
        ids.push_back(static_cast<Id>(RandomInt(&random, -range, range)));
      }
      const auto want = NaiveUnique<Id, Index>(ids);
      for (const int num_threads : kThreadCounts) {
        EXPECT_TRUE((Unique<Id, Index>(ThreadedExec(num_threads), ids) == want))
            << size << " ids up to " << range << ", " << num_threads << " threads";
      }
    }
  }
}

TEST(Unique, TakesNoIds) {
  const auto result = Unique<int64_t>(SerialExec(), {});
  EXPECT_TRUE(result.ids.empty() && result.idx.empty() && result.counts.empty());
}

// Ids that start in one slot of the hash table, and belong to one thread.
TEST(Unique, IsRightWhereAllHashesCollide) {
  std::vector<int64_t> ids;
  for (uint64_t i = 0; i < 1500; ++i) {
    ids.push_back(static_cast<int64_t>(InverseMix64((i % 1000) << 44)));
    ASSERT_EQ(Mix64(static_cast<uint64_t>(ids.back())), (i % 1000) << 44);
  }
  EXPECT_TRUE(Unique<int64_t>(SerialExec(), ids) == NaiveUnique(ids));
  ids.resize(40000, ids[3]);
  EXPECT_TRUE(Unique<int64_t>(ThreadedExec(3), ids) == NaiveUnique(ids));
}

TEST(Unique, RefusesMoreIdsThanTheIndexCounts) {
  const int64_t id = 0;
  int32_t idx = 0;
  const int64_t size = int64_t{1} << 31;  // not read: refused before
  UniquePlan<int64_t> plan;
  EXPECT_TRUE(
      IsInvalid((PlanUnique<int64_t, int32_t>(SerialExec(), {&id, size}, {&idx, size}, &plan)),
                {"2147483648", "32-bit", "CounterType=int64"}));
}

}  // namespace
}  // namespace fused_embedding
