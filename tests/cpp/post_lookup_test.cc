#include "tf_ops/core/lookup/stages/post_lookup.h"

#include "tests/cpp/naive_lookup.h"

namespace fused_embedding {
namespace {

template <typename T>
struct Result {
  Array<T> combined;
  Array<int32_t> num_ids;
  std::string bytes() const { return combined.bytes() + num_ids.bytes(); }
};

template <typename T>
Status PostLookup(const CpuExec& exec, const Pairs<T>& pairs, Result<T>* result) {
  PostLookupPlan<T> plan;
  FE_RETURN_IF_ERROR(PlanPostLookup(exec, pairs, &plan));
  result->combined = Array<T>(pairs.num_rows * pairs.dim, Rounded<T>(-77));
  result->num_ids = Array<int32_t>(pairs.num_rows, -77);
  RunPostLookup(exec, pairs, plan, result->combined.span(), result->num_ids.span());
  return Status();
}

template <typename T>
void ExpectCombined(const LookupCase& in, const Matrix& want) {
  Result<T> result;
  ASSERT_TRUE(IsOk(PostLookup(SerialExec(), PairsOf<T>(in).pairs(), &result)));
  ExpectRowsClose(result.combined, want, MaxAbs(want));
}

template <typename T>
class PostLookupTypes : public ::testing::Test {};
TYPED_TEST_SUITE(PostLookupTypes, ValueTypes);

TYPED_TEST(PostLookupTypes, DoesTheExampleOfTheHeader) {
  const LookupCase in = Example(Combiner::kMean);
  ExpectCombined<TypeParam>(in, {{2, 3}, {0, 0}, {3, 4}});
  Result<TypeParam> result;
  ASSERT_TRUE(IsOk(PostLookup(SerialExec(), PairsOf<TypeParam>(in).pairs(), &result)));
  EXPECT_EQ(result.num_ids.values(), (std::vector<int32_t>{2, 0, 1}));
}

TYPED_TEST(PostLookupTypes, CombinesByHand) {
  const double root = std::sqrt(2);
  ExpectCombined<TypeParam>(Example(Combiner::kSum), {{4, 6}, {0, 0}, {3, 4}});
  ExpectCombined<TypeParam>(Example(Combiner::kSqrtn), {{4 / root, 6 / root}, {0, 0}, {3, 4}});
  LookupCase weighted = Example(Combiner::kMean);
  weighted.weights = {1, 3, 0.5};
  ExpectCombined<TypeParam>(weighted, {{2.5, 3.5}, {0, 0}, {3, 4}});
  LookupCase clipped = Example(Combiner::kSum);
  clipped.max_norm = 2.5;  // |[3, 4]| = 5
  ExpectCombined<TypeParam>(clipped, {{2.5, 4}, {0, 0}, {1.5, 2}});
}

// Sizes: few and many pairs a row, rows without pairs, one embedding, each block width.
TYPED_TEST(PostLookupTypes, AgreesWithItsDefinitionForAnyNumberOfThreads) {
  ForRandomCases<TypeParam>(
      23, {{20, 10, 60, 0}, {40, 1, 5, 0}, {1, 5, 30, 0}, {6, 2, 6, 0}},
      [](const LookupCase& in, Random* random) {
        const Matrix want = NaiveCombine(in);
        const PairsOf<TypeParam> pairs(in, 1 + RandomInt(random, 0, 1));
        Result<TypeParam> first;
        ASSERT_TRUE(IsOk(PostLookup(SerialExec(), pairs.pairs(), &first)));
        ASSERT_NO_FATAL_FAILURE(
            ExpectRowsClose(first.combined, want, MaxAbs(want) + MaxAbs(in.embeddings)))
            << in;
        for (const int num_threads : kThreadCounts) {
          Result<TypeParam> result;
          ASSERT_TRUE(IsOk(PostLookup(ThreadedExec(num_threads), pairs.pairs(), &result)));
          EXPECT_EQ(result.bytes(), first.bytes()) << in << ", " << num_threads << " threads";
        }
      });
}

TYPED_TEST(PostLookupTypes, CountsThePairsOfRowsThatAreNotZero) {
  LookupCase in = Example(Combiner::kSum);
  in.is_zero_row = {false, false, true};
  const PairsOf<TypeParam> pairs(in);
  Result<TypeParam> result;
  ASSERT_TRUE(IsOk(PostLookup(SerialExec(), pairs.pairs(), &result)));
  EXPECT_EQ(result.num_ids.values(), (std::vector<int32_t>{2, 0, 0}));
  ExpectRowsClose(result.combined, {{4, 6}, {0, 0}, {0, 0}}, 6);
}

TYPED_TEST(PostLookupTypes, NanAndInfinityStayInTheirRows) {
  LookupCase in = Example(Combiner::kSum);
  in.embeddings = {{std::nan(""), 2}, {std::numeric_limits<double>::infinity(), 4}};
  in.row_ids = {0, 2, 2};
  ExpectCombined<TypeParam>(in, NaiveCombine(in));
  in.is_zero_row = {true, true, true};  // whatever the row holds
  ExpectCombined<TypeParam>(in, ZeroMatrix(3, 2));
}

TYPED_TEST(PostLookupTypes, AZeroDenominatorGivesZero) {
  for (const Combiner combiner : {Combiner::kMean, Combiner::kSqrtn}) {
    LookupCase in = Example(combiner);
    in.weights = {0, 0, 0};
    ExpectCombined<TypeParam>(in, ZeroMatrix(3, 2));
  }
  LookupCase in = Example(Combiner::kMean);
  in.weights = {2, -2, 1};
  ExpectCombined<TypeParam>(in, {{0, 0}, {0, 0}, {3, 4}});
}

TYPED_TEST(PostLookupTypes, ClipsAtItsEdges) {
  LookupCase in = Example(Combiner::kSum);
  in.embeddings = {{0, 0}, {3, 4}};
  in.max_norm = 5;  // just as long: not clipped
  ExpectCombined<TypeParam>(in, {{3, 4}, {0, 0}, {3, 4}});
  in.max_norm = 0;
  ExpectCombined<TypeParam>(in, ZeroMatrix(3, 2));
}

TEST(PostLookup, SixteenBitsAreAddedInFloat) {
  LookupCase in;
  in.combiner = Combiner::kMean;
  in.num_rows = 1;
  in.dim = 1;
  in.embeddings = {{60000}};
  in.unique_idx.assign(1000, 0);
  in.row_ids.assign(1000, 0);
  ExpectCombined<Half>(in, {{60000}});  // the sum is far past what Half holds
  in.combiner = Combiner::kSum;
  ExpectCombined<Half>(in, {{std::numeric_limits<double>::infinity()}});
  in.embeddings = {{1}};
  ExpectCombined<BFloat16>(in, {{1000}});  // adding in bfloat16 would end at 256
  in.embeddings = {{60000}};
  in.unique_idx.assign(1, 0);
  in.row_ids.assign(1, 0);
  in.max_norm = 1;  // the square is past what Half holds
  ExpectCombined<Half>(in, {{1}});
}

TEST(PostLookup, TakesNothing) {
  for (const CaseSize& size : {CaseSize{0, 0, 0, 4}, CaseSize{3, 0, 0, 4}, CaseSize{3, 2, 5, 0}}) {
    LookupCase in;
    Random random(1);
    if (size.num_pairs > 0) in = RandomCase<float>(&random, size, Combiner::kMean, false);
    in.num_rows = size.num_rows;
    in.dim = size.dim;
    in.max_norm = 1;
    ExpectCombined<float>(in, ZeroMatrix(static_cast<size_t>(size.num_rows), size.dim));
  }
}

TEST(PostLookup, NamesWhatIsWrong) {
  Result<float> result;
  const auto run = [&](const LookupCase& in) {
    return PostLookup(SerialExec(), PairsOf<float>(in).pairs(), &result);
  };
  LookupCase in = Example(Combiner::kSum);
  for (const int32_t u : {2, -1, std::numeric_limits<int32_t>::max()}) {
    in.unique_idx[1] = u;
    EXPECT_TRUE(IsInvalid(run(in), {"unique_idxs[1] = ", std::to_string(u).c_str(), "[0, 2)"}));
  }
  in = Example(Combiner::kSum);
  for (const int64_t row : {int64_t{3}, int64_t{-1}, kInt64Max, kInt64Min}) {
    in.row_ids[2] = row;
    EXPECT_TRUE(
        IsInvalid(run(in), {"indices[2, 0] = ", std::to_string(row).c_str(), "num_rows = 3"}));
  }
  in = Example(Combiner::kSum);
  in.unique_idx.pop_back();
  EXPECT_TRUE(IsInvalid(run(in), {"unique_idxs", "the 3 rows", "has 2"}));
  in = Example(Combiner::kSum);
  in.weights = {1};
  EXPECT_TRUE(IsInvalid(run(in), {"one weight", "the 3 ids", "got 1"}));
  in = Example(Combiner::kSum);
  in.is_zero_row = {true};
  EXPECT_TRUE(IsInvalid(run(in), {"is_row_empty", "the 3 rows", "has 1"}));
}

TEST(PostLookup, RefusesMoreRowsThanAnyMachineHas) {
  LookupCase in;
  in.dim = 0;
  PostLookupPlan<float> plan;
  for (const int64_t num_rows : {kInt64Max, kInt64Max - 1, int64_t{1} << 60}) {
    in.num_rows = num_rows;
    const Status status = PlanPostLookup(SerialExec(), PairsOf<float>(in).pairs(), &plan);
    EXPECT_TRUE(Fails(status, StatusCode::kResourceExhausted, {"smaller batch"}));
  }
}

TEST(PostLookup, RefusesMorePairsThanItCounts) {
  const int32_t unique_idx = 0;
  const int64_t row_id = 0;
  const RowIds row_ids{&row_id, int64_t{1} << 31, 0};  // stride 0: one number, read 2^31 times
  EXPECT_TRUE(IsInvalid(CheckRowIds(row_ids, 1), {"2147483648", "smaller batch"}));
  Pairs<float> pairs;
  pairs.row_ids = row_ids;
  pairs.unique_idx = {&unique_idx, 1};
  EXPECT_TRUE(IsInvalid(CheckPairs(pairs), {"unique_idxs"}));
}

TEST(GroupByRow, DoesTheExampleOfTheHeader) {
  const Array<int64_t> keys = {2, 0, 2};
  PairGroups groups;
  ASSERT_TRUE(IsOk(GroupByRow({keys.span().data, 3, 1}, 3, &groups)));
  EXPECT_FALSE(groups.is_identity);
  const std::vector<int32_t> splits(groups.splits.span().begin(), groups.splits.span().end());
  const std::vector<int32_t> order(groups.order.span().begin(), groups.order.span().end());
  EXPECT_EQ(splits, (std::vector<int32_t>{0, 1, 1, 3}));
  EXPECT_EQ(order, (std::vector<int32_t>{1, 0, 2}));
}

TEST(GroupByRow, KeepsInputOrderInAGroup) {
  Random random(29);
  for (int round = 0; round < 100; ++round) {
    const int64_t num_groups = RandomInt(&random, 1, 9);
    Array<int64_t> keys(RandomInt(&random, 0, 50));
    for (int64_t i = 0; i < keys.size(); ++i) keys[i] = RandomInt(&random, 0, num_groups - 1);
    if (RandomBool(&random)) std::sort(keys.data(), keys.data() + keys.size());
    PairGroups groups;
    ASSERT_TRUE(IsOk(GroupByRow({keys.data(), keys.size(), 1}, num_groups, &groups)));
    EXPECT_EQ(groups.is_identity, std::is_sorted(keys.data(), keys.data() + keys.size()));
    EXPECT_EQ(groups.begin(0), 0);
    EXPECT_EQ(groups.end(num_groups - 1), keys.size());
    std::vector<int64_t> seen;
    for (int64_t group = 0; group < num_groups; ++group) {
      for (int64_t i = groups.begin(group); i < groups.end(group); ++i) {
        EXPECT_EQ(keys[groups.pair(i)], group);
        EXPECT_TRUE(i == groups.begin(group) || groups.pair(i - 1) < groups.pair(i));
        seen.push_back(groups.pair(i));
      }
    }
    std::sort(seen.begin(), seen.end());
    for (int64_t i = 0; i < keys.size(); ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  }
}

}  // namespace
}  // namespace fused_embedding
