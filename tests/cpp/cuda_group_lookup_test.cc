#include "tests/cpp/cuda_group_testing.h"

namespace fused_embedding {
namespace {

template <typename T>
class CudaGroupLookup : public GpuTest {};
TYPED_TEST_SUITE(CudaGroupLookup, ValueTypes);

TYPED_TEST(CudaGroupLookup, EqualsItsDefinitionInAnyOrderOfThreads) {
  for (int seed = 0; seed < NumCases(100); ++seed) {
    SCOPED_TRACE(seed);
    const DeviceGroup<TypeParam> group(seed);
    const int64_t gap = seed % 5;
    std::vector<Array<TypeParam>> want;
    for (const uint64_t order : OrderSeeds()) {
      ShuffleOrder(order);
      std::vector<Array<TypeParam>> got = group.Combine(this->gpu, gap);
      if (want.empty()) {
        group.ExpectCombined(got, gap);
        want = std::move(got);
        continue;
      }
      for (size_t c = 0; c < want.size(); ++c) ASSERT_EQ(got[c].bytes(), want[c].bytes());
    }
  }
}

TYPED_TEST(CudaGroupLookup, GradientEqualsItsDefinitionInAnyOrderOfThreads) {
  for (int seed = 0; seed < NumCases(100); ++seed) {
    SCOPED_TRACE(seed);
    const DeviceGroup<TypeParam> group(seed);
    std::string bytes;
    for (const uint64_t order : OrderSeeds()) {
      ShuffleOrder(order);
      const auto got = group.Backward(this->gpu, seed % 2);
      std::string got_bytes;
      for (const auto& table : got) got_bytes += table.ids.bytes() + table.rows.bytes();
      if (order == OrderSeeds()[0]) {
        group.ExpectGradient(got);
        bytes = got_bytes;
      }
      ASSERT_EQ(got_bytes, bytes);
    }
  }
}

TYPED_TEST(CudaGroupLookup, GradientOfWeightsEqualsItsDefinitionInAnyOrderOfThreads) {
  for (int seed = 0; seed < NumCases(100); ++seed) {
    SCOPED_TRACE(seed);
    const DeviceGroup<TypeParam> group(seed);
    std::string bytes;
    for (const uint64_t order : OrderSeeds()) {
      ShuffleOrder(order);
      const auto got = group.BackwardWeights(this->gpu, seed % 3);
      std::string got_bytes;
      for (const auto& column : got) got_bytes += column.bytes();
      if (order == OrderSeeds()[0]) {
        group.ExpectWeightsGradients(got);
        bytes = got_bytes;
      }
      ASSERT_EQ(got_bytes, bytes);
    }
  }
}

TYPED_TEST(CudaGroupLookup, WeightsOfPairsThatAreRefusedHaveNoGradient) {
  using C = ComputeType<TypeParam>;
  const DeviceArray<int64_t> ids(Array<int64_t>{1, 9, 0, 1, 0});
  const DeviceArray<int64_t> row_ids(Array<int64_t>{0, 0, kInt64Max, 0, -1});
  const DeviceArray<C> weights(Array<C>{1, 2, 4, 3, 5});
  const DeviceArray<TypeParam> table(Flat<TypeParam>({{8}, {2}}, 1)),
      grad(Flat<TypeParam>({{1}}, 1));
  GroupColumn<TypeParam> column;
  column.ids = ids.view();
  column.row_ids = {row_ids.data(), 5};
  column.weights = weights.view();
  column.num_rows = column.dim = 1;
  column.table = table.data();
  column.table_rows = 2;
  column.combiner = Combiner::kSum;
  const CombinedGrad<TypeParam> combined_grad = {grad.data(), 1};
  const DeviceArray<C> got(5);
  C* out = got.data();
  ASSERT_TRUE(IsOk(
      GroupLookupWeightsGrad<TypeParam>(this->gpu, {&column, 1}, {&combined_grad, 1}, {&out, 1})));
  EXPECT_EQ(got.ToHost().values(), (std::vector<C>{2, 0, 0, 2, 0}));
  column.weights.size = 4;
  EXPECT_TRUE(IsInvalid(
      GroupLookupWeightsGrad<TypeParam>(this->gpu, {&column, 1}, {&combined_grad, 1}, {&out, 1}),
      {"column 0", "one weight for each of the 5 ids, got 4"}));
}

// One column of two ids, of which a test spoils something.
class CudaCheckColumns : public GpuTest {
 protected:
  Status Check() {
    const DeviceArray<int64_t> device_ids(ids), device_rows(row_ids);
    const DeviceArray<float> device_weights(weights);
    GroupColumn<float> spoilt = column;
    if (is_int32) {
      ids32 = DeviceArray<int32_t>(Array<int32_t>::Of(ids.values()));
      spoilt.ids = ids32.view();
    } else {
      spoilt.ids = device_ids.view();
    }
    spoilt.row_ids = {device_rows.data(), num_row_ids, 1, "sp_indices"};
    spoilt.weights = device_weights.view();
    spoilt.table_rows = 4;
    std::vector<PairOrder> orders;
    FE_RETURN_IF_ERROR(CheckColumns<float>(gpu, {&spoilt, 1}, &orders));
    order = orders[0];
    return Status();
  }

  Array<int64_t> ids{1, 3}, row_ids{0, 2};
  DeviceArray<int32_t> ids32;
  Array<float> weights;
  int64_t num_row_ids = 2;
  bool is_int32 = false;
  GroupColumn<float> column = [] {
    GroupColumn<float> three_rows;
    three_rows.num_rows = 3;
    three_rows.dim = 1;
    return three_rows;
  }();
  PairOrder order;
};

TEST_F(CudaCheckColumns, SaysHowPairsAreOrdered) {
  ASSERT_TRUE(IsOk(Check()));
  EXPECT_TRUE(order.is_sorted && !order.is_one_hot && order.keeps_all);
  row_ids = {1, 0};
  ids = {-1, 3};
  column.num_rows = 2;
  ASSERT_TRUE(IsOk(Check()));
  EXPECT_TRUE(!order.is_sorted && !order.is_one_hot && !order.keeps_all);
  row_ids = {0, 1};
  ids = {0, 3};
  ASSERT_TRUE(IsOk(Check()));
  EXPECT_TRUE(order.is_sorted && order.is_full());
}

TEST_F(CudaCheckColumns, NamesAnIdThatIsNotInTheTable) {
  ids[1] = 4;
  EXPECT_TRUE(IsInvalid(Check(), {"column 0", "id 4 at position 1", "[0, 4)"}));
  is_int32 = true;
  ids = {-2, 7};
  EXPECT_TRUE(IsInvalid(Check(), {"column 0", "id 7 at position 1", "[0, 4)"}));
  column.prune = false;
  EXPECT_TRUE(IsInvalid(Check(), {"id -2 at position 0", "[0, 4)"}));
}

TEST_F(CudaCheckColumns, NamesARowOutOfRange) {
  for (const int64_t row : {int64_t{-1}, int64_t{3}, kInt64Min, kInt64Max}) {
    row_ids[1] = row;
    for (const int64_t dim : {0, 1}) {
      column.dim = dim;
      EXPECT_TRUE(IsInvalid(Check(), {"column 0", "sp_indices[1, 0]", "num_rows = 3"}));
    }
  }
}

TEST_F(CudaCheckColumns, NamesLengthsThatDisagree) {
  num_row_ids = 1;
  EXPECT_TRUE(IsInvalid(Check(), {"one row for each of the 2 ids, got 1"}));
  num_row_ids = 2;
  weights = Array<float>{1};
  EXPECT_TRUE(IsInvalid(Check(), {"one weight for each of the 2 ids, got 1"}));
}

TEST_F(CudaCheckColumns, ADefaultIdMustExistWhereARowIsEmpty) {
  column.default_id = 9;
  EXPECT_TRUE(IsInvalid(Check(), {"id 9, which fills row 1", "[0, 4)"}));
  column.fill = false;
  EXPECT_TRUE(IsOk(Check()));
  column.fill = true;
  column.num_rows = 2;
  row_ids[1] = 1;
  EXPECT_TRUE(IsOk(Check()));
}

TEST_F(CudaCheckColumns, APrunedIdMayBeAnything) {
  weights = Array<float>{0, 1};
  ids[0] = kInt64Max;
  EXPECT_TRUE(IsOk(Check()));
  column.combiner = Combiner::kSum;  // zero weights are no reason to prune then
  EXPECT_TRUE(IsInvalid(Check(), {"id 9223372036854775807 at position 0"}));
}

}  // namespace
}  // namespace fused_embedding
