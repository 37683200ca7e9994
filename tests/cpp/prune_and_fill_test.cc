#include "tf_ops/core/lookup/stages/prune_and_fill.h"

#include "tests/cpp/prune_and_fill_testing.h"

namespace fused_embedding {
namespace {

using Bools = std::vector<bool>;

TEST(PruneAndFill, DoesTheExampleOfTheHeader) {
  const PruneAndFillBatch batch({7, -1, 3}, {0, 0, 2});
  PruneAndFillInput<float> in = batch.Input(4);
  in.default_id = 0;
  PruneAndFillResult<float> out;
  ASSERT_TRUE(IsOk(PruneAndFill(in, &out)));
  EXPECT_EQ(out.ids.values(), (Ints{7, 3, 0, 0}));
  EXPECT_EQ(out.indices.values(), (Ints{0, 7, 2, 9, 1, 0, 3, 0}));
  EXPECT_EQ(out.is_row_empty.values(), (Bools{false, true, false, true}));
}

TEST(PruneAndFill, FillsWithTheDefaultIdOrWithZero) {
  const PruneAndFillBatch batch({}, {});
  PruneAndFillInput<float> in = batch.Input(2);
  PruneAndFillResult<float> out;
  for (const int64_t default_id : {int64_t{5}, kInt64Max, int64_t{-1}, kInt64Min}) {
    in.default_id = default_id;
    ASSERT_TRUE(IsOk(PruneAndFill(in, &out)));
    const int64_t want = std::max<int64_t>(default_id, 0);
    EXPECT_EQ(out.ids.values(), (Ints{want, want}));
    EXPECT_EQ(out.indices.values(), (Ints{0, 0, 1, 0}));
  }
}

TEST(PruneAndFill, DoesOnlyWhatIsAskedFor) {
  const PruneAndFillBatch batch({-3, 4, kInt64Min}, {2, 0, 2});
  PruneAndFillInput<float> in = batch.Input(3);
  PruneAndFillResult<float> out;
  in.fill = false;
  ASSERT_TRUE(IsOk(PruneAndFill(in, &out)));
  EXPECT_EQ(out.ids.values(), (Ints{4}));
  EXPECT_EQ(out.is_row_empty.values(), (Bools{false, true, true}));
  in.prune = false;
  ASSERT_TRUE(IsOk(PruneAndFill(in, &out)));
  EXPECT_EQ(out.ids.values(), (Ints{-3, 4, kInt64Min}));
  EXPECT_EQ(out.is_row_empty.values(), (Bools{false, true, false}));
  in.fill = true;
  ASSERT_TRUE(IsOk(PruneAndFill(in, &out)));
  EXPECT_EQ(out.ids.values(), (Ints{-3, 4, kInt64Min, 0}));
}

TEST(PruneAndFill, TakesNoRowsAndNoIds) {
  const PruneAndFillBatch batch({}, {});
  PruneAndFillResult<float> out;
  ASSERT_TRUE(IsOk(PruneAndFill(batch.Input(0), &out)));
  EXPECT_EQ(out.ids.size(), 0);
}

template <typename Weight>
class PruneAndFillWeights : public ::testing::Test {};
TYPED_TEST_SUITE(PruneAndFillWeights, ValueTypes);

TYPED_TEST(PruneAndFillWeights, PrunesWhatIsNotPositive) {
  const double infinity = std::numeric_limits<double>::infinity();
  Array<TypeParam> weights(7);
  int64_t i = 0;
  for (const double weight : {2.0, 0.0, -0.0, -1.0, std::nan(""), infinity, -infinity}) {
    weights[i++] = Rounded<TypeParam>(weight);
  }
  const PruneAndFillBatch batch({0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6});
  const PruneAndFillInput<float> pairs = batch.Input(8);
  PruneAndFillInput<TypeParam> in;
  in.ids = pairs.ids;
  in.indices = pairs.indices;
  in.weights = weights.view();
  in.num_rows = 8;
  in.prune = in.prune_weights = in.fill = true;
  in.default_weight = 0.5;
  PruneAndFillResult<TypeParam> out;
  ASSERT_TRUE(IsOk(PruneAndFill(in, &out)));
  EXPECT_EQ(out.ids.values(), (Ints{0, 5, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Load(out.weights[0]), 2);
  EXPECT_EQ(Load(out.weights[1]), infinity);
  for (int64_t k = 2; k < 8; ++k) EXPECT_EQ(Load(out.weights[k]), 0.5) << k;

  in.prune_weights = false;
  ASSERT_TRUE(IsOk(PruneAndFill(in, &out)));
  EXPECT_EQ(out.ids.values(), (Ints{0, 1, 2, 3, 4, 5, 6, 0}));

  in.prune = false;
  in.prune_weights = true;  // prunes nothing by itself
  ASSERT_TRUE(IsOk(PruneAndFill(in, &out)));
  EXPECT_EQ(out.ids.values(), (Ints{0, 1, 2, 3, 4, 5, 6, 0}));
}

TYPED_TEST(PruneAndFillWeights, GradientGoesToTheKeptPairs) {
  Array<int64_t> ids = {4, -1, 5, 6};
  Array<TypeParam> weights(4);
  int64_t i = 0;
  for (const double weight : {1.0, 1.0, -2.0, 3.0}) weights[i++] = Rounded<TypeParam>(weight);
  PruneAndFillInput<TypeParam> in;
  in.ids = ids.view();
  in.weights = weights.view();
  in.prune = in.prune_weights = true;
  Array<TypeParam> kept_grad(3);  // two kept, one filled
  for (int64_t k = 0; k < 3; ++k) kept_grad[k] = Rounded<TypeParam>(10.0 + static_cast<double>(k));
  Array<TypeParam> grad(4, Rounded<TypeParam>(99));
  ASSERT_TRUE(IsOk(PruneAndFillGrad(in, kept_grad.view(), grad.span())));
  EXPECT_EQ(Load(grad[0]), 10);
  EXPECT_EQ(Load(grad[1]), 0);
  EXPECT_EQ(Load(grad[2]), 0);
  EXPECT_EQ(Load(grad[3]), 11);

  const Array<TypeParam> too_short(1);
  EXPECT_TRUE(IsInvalid(PruneAndFillGrad(in, too_short.view(), grad.span()), {"1 entries"}));
}

TEST(PruneAndFill, NamesTheFirstBadRow) {
  for (const int64_t row : {int64_t{3}, int64_t{-1}, kInt64Max, kInt64Min}) {
    const PruneAndFillBatch batch({1, 2, 3}, {0, row, 4});
    PruneAndFillResult<float> out;
    EXPECT_TRUE(IsInvalid(PruneAndFill(batch.Input(3), &out),
                          {"sp_indices[1, 0] = ", std::to_string(row).c_str(), "num_rows = 3"}));
  }
  // A row is checked even where its id is dropped.
  const PruneAndFillBatch batch({-1}, {0});
  PruneAndFillResult<float> out;
  EXPECT_TRUE(IsInvalid(PruneAndFill(batch.Input(0), &out), {"sp_indices[0, 0] = 0"}));
}

TEST(PruneAndFill, ChecksLengths) {
  const PruneAndFillBatch batch({1, 2}, {0, 1});
  PruneAndFillInput<float> in = batch.Input(2);
  PruneAndFillResult<float> out;
  in.indices.size = 3;
  EXPECT_TRUE(IsInvalid(PruneAndFill(in, &out), {"sp_indices", "2 ids", "3 values"}));
  in.indices.size = 4;
  const Array<float> weights = {1, 2, 3};
  in.weights = weights.view();
  EXPECT_TRUE(IsInvalid(PruneAndFill(in, &out), {"sp_weights_values", "2 ids", "has 3"}));
  in.weights = {};
  in.prune_weights = true;
  EXPECT_TRUE(IsInvalid(PruneAndFill(in, &out), {"sp_weights_values", "has 0"}));
}

TEST(PruneAndFill, AgreesWithItsDefinition) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    const int64_t num_rows = RandomInt(&random, 1, 20);
    std::vector<int64_t> ids, rows;
    std::vector<float> weights;
    for (int64_t i = RandomInt(&random, 0, 40); i > 0; --i) {
      ids.push_back(RandomInt(&random, -2, 5));
      rows.push_back(RandomInt(&random, 0, num_rows - 1));
      weights.push_back(static_cast<float>(RandomInt(&random, -1, 3)));
    }
    const PruneAndFillBatch batch(ids, rows);
    const Array<float> weight_array = Array<float>::Of(weights);
    PruneAndFillInput<float> in = batch.Input(num_rows);
    in.weights = weight_array.view();
    in.default_id = 3;
    in.prune = RandomBool(&random);
    in.prune_weights = RandomBool(&random);
    in.fill = RandomBool(&random);

    std::vector<int64_t> want_ids, want_rows;
    std::vector<float> want_weights;
    std::vector<bool> want_empty(static_cast<size_t>(num_rows), true);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (in.prune && (ids[i] < 0 || (in.prune_weights && weights[i] <= 0))) continue;
      want_ids.push_back(ids[i]);
      want_rows.push_back(rows[i]);
      want_weights.push_back(weights[i]);
      want_empty[static_cast<size_t>(rows[i])] = false;
    }
    for (int64_t row = 0; in.fill && row < num_rows; ++row) {
      if (!want_empty[static_cast<size_t>(row)]) continue;
      want_ids.push_back(3);
      want_rows.push_back(row);
      want_weights.push_back(1);
    }
    PruneAndFillResult<float> out;
    ASSERT_TRUE(IsOk(PruneAndFill(in, &out)));
    EXPECT_EQ(out.ids.values(), want_ids);
    EXPECT_EQ(out.weights.values(), want_weights.empty() ? std::vector<float>{}
                                    : weights.empty()    ? std::vector<float>{}
                                                         : want_weights);
    EXPECT_EQ(out.is_row_empty.values(), want_empty);
    for (size_t i = 0; i < want_rows.size(); ++i) {
      EXPECT_EQ(out.indices[2 * static_cast<int64_t>(i)], want_rows[i]);
    }
  }
}

}  // namespace
}  // namespace fused_embedding
