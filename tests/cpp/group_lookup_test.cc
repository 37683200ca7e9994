#include "tf_ops/core/lookup/group/group_lookup.h"

#include "tests/cpp/group_testing.h"
#include "tf_ops/core/lookup/group/group_lookup_grad.h"
#include "tf_ops/core/lookup/group/group_lookup_weights_grad.h"

namespace fused_embedding {
namespace {

// A group, its results on some executor.
template <typename T>
class Group : public GroupCase<T> {
 public:
  using typename GroupCase<T>::Gradient;
  using GroupCase<T>::cases_, GroupCase<T>::tables_, GroupCase<T>::table_of_column_,
      GroupCase<T>::flat_grads_;

  explicit Group(int seed) : GroupCase<T>(seed) {
    for (size_t c = 0; c < cases_.size(); ++c) {
      memory_.push_back(std::make_unique<ColumnOf<T>>(
          cases_[c], this->flat_tables_[cases_[c].table], this->row_strides_[c]));
      columns_.push_back(memory_.back()->column());
    }
  }

  Span<const GroupColumn<T>> span() const {
    return {columns_.data(), static_cast<int64_t>(columns_.size())};
  }

  // Each column's result, with `gap` values between rows that must stay as they are.
  std::vector<Array<T>> Combine(const CpuExec& exec, int64_t gap) const {
    return CombineColumns(exec, cases_, span(), gap);
  }

  std::vector<Gradient> Backward(const CpuExec& exec) const {
    std::vector<CombinedGrad<T>> grads;
    for (size_t c = 0; c < cases_.size(); ++c) {
      grads.push_back({flat_grads_[c].span().data, cases_[c].pairs.dim});
    }
    const int64_t num_columns = static_cast<int64_t>(cases_.size());
    const int64_t num_tables = static_cast<int64_t>(tables_.size());
    GroupGradPlan<T> plan;
    EXPECT_TRUE(IsOk(PlanGroupLookupGrad<T>(
        exec,
        {span(), {grads.data(), num_columns}, {table_of_column_.data(), num_columns}, num_tables},
        &plan)));
    std::vector<Gradient> results;
    std::vector<TableGrad<T>> out;
    for (size_t t = 0; t < tables_.size(); ++t) {
      const int64_t num_unique = plan.tables[t].unique.num_unique;
      const int64_t dim = static_cast<int64_t>(tables_[t][0].size());
      results.push_back({Array<int64_t>(num_unique, -77), Array<T>(num_unique * dim)});
      out.push_back({results.back().ids.data(), results.back().rows.data()});
    }
    RunGroupLookupGrad<T>(exec, &plan, {out.data(), num_tables});
    return results;
  }

  void ExpectWeightsGrads(const CpuExec& exec) const {
    for (size_t c = 0; c < cases_.size(); ++c) {
      const ColumnCase& in = cases_[c];
      if (in.weights.empty()) continue;
      Array<ComputeType<T>> got(static_cast<int64_t>(in.ids.size()), -77);
      ASSERT_TRUE(IsOk(GroupLookupWeightsGrad<T>(
          exec, columns_[c], {flat_grads_[c].span().data, in.pairs.dim}, got.span())));
      this->ExpectWeightsGradient(c, got);
    }
  }

 private:
  std::vector<std::unique_ptr<ColumnOf<T>>> memory_;
  std::vector<GroupColumn<T>> columns_;
};

template <typename T>
class GroupLookup : public ::testing::Test {};
TYPED_TEST_SUITE(GroupLookup, ValueTypes);

TYPED_TEST(GroupLookup, EqualsItsDefinitionForAnyNumberOfThreads) {
  for (int seed = 0; seed < NumCases(150); ++seed) {
    SCOPED_TRACE(seed);
    const Group<TypeParam> group(seed);
    ExpectCombinedByAnyNumberOfThreads(group, seed % 3);
  }
}

TYPED_TEST(GroupLookup, GradientEqualsItsDefinitionForAnyNumberOfThreads) {
  for (int seed = 0; seed < NumCases(150); ++seed) {
    SCOPED_TRACE(seed);
    const Group<TypeParam> group(seed);
    const auto want = group.Backward(SerialExec());
    group.ExpectGradient(want);
    group.ExpectWeightsGrads(ThreadedExec(3));
    for (const int num_threads : kThreadCounts) {
      const auto got = group.Backward(ThreadedExec(num_threads));
      for (size_t t = 0; t < want.size(); ++t) {
        ASSERT_EQ(got[t].rows.bytes(), want[t].rows.bytes());
      }
    }
  }
}

// One column over a table of two rows: `num_pairs` pairs, of which all but one in 64 are of row 0.
template <typename T>
struct HotColumn {
  explicit HotColumn(int64_t num_pairs) : ids(num_pairs), row_ids(num_pairs), grads(num_pairs) {
    Random random(5);
    for (int64_t k = 0; k < num_pairs; ++k) {
      ids[k] = k % 64 == 63;
      row_ids[k] = k;
      grads[k] = Rounded<T>(static_cast<double>(RandomInt(&random, -64, 64)) / 64);
      sums[ids[k]] += Load(grads[k]);
    }
    column.ids = ids.view();
    column.row_ids = {row_ids.data(), num_pairs};
    column.num_rows = num_pairs;
    column.table = table.data();
    column.table_rows = 2;
    column.dim = 1;
    column.combiner = Combiner::kSum;
  }

  Array<T> RowsGrad(const CpuExec& exec) const {
    const CombinedGrad<T> grad{grads.span().data, 1};
    const int64_t table = 0;
    GroupGradPlan<T> plan;
    EXPECT_TRUE(
        IsOk(PlanGroupLookupGrad<T>(exec, {{&column, 1}, {&grad, 1}, {&table, 1}, 1}, &plan)));
    EXPECT_EQ(plan.tables[0].unique.num_unique, 2);
    Array<int64_t> unique_ids(2);
    Array<T> rows(2);
    const TableGrad<T> out{unique_ids.data(), rows.data()};
    RunGroupLookupGrad<T>(exec, &plan, {&out, 1});
    return rows;
  }

  Array<T> table{Rounded<T>(1), Rounded<T>(2)};
  Array<int64_t> ids, row_ids;
  Array<T> grads;
  double sums[2] = {0, 0};
  GroupColumn<T> column;
};

TYPED_TEST(GroupLookup, SumsOfIdsWithManyPairsAreTakenInParts) {
  const HotColumn<TypeParam> hot(200000);
  const Array<TypeParam> want = hot.RowsGrad(SerialExec());
  EXPECT_TRUE(IsClose(want[0], hot.sums[0], 1e5));
  EXPECT_TRUE(IsClose(want[1], hot.sums[1], 1e5));
  for (const int num_threads : kThreadCounts) {
    EXPECT_EQ(hot.RowsGrad(ThreadedExec(num_threads)).bytes(), want.bytes());
  }
}

// One column of two ids, of which a test spoils something.
struct SmallColumn {
  SmallColumn() {
    column.ids = ids.view();
    column.row_ids = {row_ids.data(), 2, 1, "sp_indices"};
    column.num_rows = 3;
    column.table = table.data();
    column.table_rows = 4;
    column.dim = 1;
  }
  Status Check() const {
    std::vector<PairOrder> orders;
    return CheckColumns<float>(ThreadedExec(2), {&column, 1}, &orders);
  }

  Array<float> table{1, 2, 3, 4};
  Array<int64_t> ids{1, 3}, row_ids{0, 2};
  GroupColumn<float> column;
};

TEST(CheckColumns, NamesWhatIsWrong) {
  EXPECT_TRUE(IsOk(SmallColumn().Check()));
  SmallColumn large;
  large.ids[1] = 4;
  EXPECT_TRUE(IsInvalid(large.Check(), {"column 0: id 4 at position 1", "[0, 4)"}));
  large.column.name = "feature 'a'";
  EXPECT_TRUE(IsInvalid(large.Check(), {"feature 'a': id 4 at position 1", "[0, 4)"}));
  SmallColumn negative;
  negative.ids[0] = -2;
  EXPECT_TRUE(IsOk(negative.Check()));
  negative.column.prune = false;
  EXPECT_TRUE(IsInvalid(negative.Check(), {"id -2 at position 0", "[0, 4)"}));
  for (const int64_t row : {int64_t{-1}, int64_t{3}, kInt64Min, kInt64Max}) {
    SmallColumn outside;
    outside.row_ids[1] = row;
    EXPECT_TRUE(IsInvalid(outside.Check(), {"column 0", "sp_indices[1, 0]", "num_rows = 3"}));
  }
  SmallColumn short_rows;
  short_rows.column.row_ids.size = 1;
  EXPECT_TRUE(IsInvalid(short_rows.Check(), {"one row for each of the 2 ids, got 1"}));
  SmallColumn short_weights;
  short_weights.column.weights = {short_weights.table.data(), 1};
  EXPECT_TRUE(IsInvalid(short_weights.Check(), {"one weight for each of the 2 ids, got 1"}));
}

// Rows of as many ids, and the status and result of looking them up.
struct LongColumn {
  LongColumn(int64_t dim, int64_t pairs_in_row, bool is_weighted)
      : num_rows(kNumPairs / pairs_in_row), table(4 * dim) {
    for (int64_t i = 0; i < kNumPairs; ++i) {
      ids[i] = i % 4;
      row_ids[i] = i / pairs_in_row;
    }
    if (is_weighted) column.weights = ones.view();
    for (int64_t i = 0; i < 4 * dim; ++i) table[i] = static_cast<float>(i);
    column.ids = ids.view();
    column.row_ids = {row_ids.data(), kNumPairs};
    column.table = table.data();
    column.num_rows = num_rows;
    column.table_rows = 4;
    column.dim = dim;
    column.combiner = Combiner::kSum;
  }

  Status Run(const CpuExec& exec, Array<float>* sums) const {
    GroupPlan<float> plan;
    FE_RETURN_IF_ERROR(PlanGroupLookup<float>(exec, {&column, 1}, &plan));
    const CombinedOut<float> out{sums->data(), column.dim};
    return RunGroupLookup<float>(exec, {&column, 1}, plan, {&out, 1});
  }

  // A lookup must fail as CheckColumns does, or add up.
  void ExpectChecked() const {
    std::vector<PairOrder> orders;
    const Status want = CheckColumns<float>(SerialExec(), {&column, 1}, &orders);
    Array<float> want_sums(num_rows * column.dim, 0);
    for (int64_t i = 0; want.ok() && i < kNumPairs; ++i) {
      for (int64_t d = 0; d < column.dim && ids[i] >= 0; ++d) {
        want_sums[row_ids[i] * column.dim + d] += table[ids[i] * column.dim + d];
      }
    }
    for (const int num_threads : {1, 3}) {
      Array<float> sums(num_rows * column.dim, -1);
      const Status got = Run(ThreadedExec(num_threads), &sums);
      ASSERT_EQ(got.code(), want.code());
      ASSERT_EQ(got.message(), want.message());
      if (want.ok()) {
        ASSERT_EQ(sums.bytes(), want_sums.bytes());
      }
    }
  }

  static constexpr int64_t kNumPairs = 600;
  int64_t num_rows;
  Array<float> table, ones = Array<float>(kNumPairs, 1);
  Array<int64_t> ids = Array<int64_t>(kNumPairs), row_ids = Array<int64_t>(kNumPairs);
  GroupColumn<float> column;
};

void ExpectSpoiltPairsToBeFound(int64_t dim, int64_t pairs_in_row, bool is_weighted) {
  const auto column_of = [=] { return LongColumn(dim, pairs_in_row, is_weighted); };
  const int64_t num_rows = column_of().num_rows;
  for (const int64_t pair : {0, 1, 2, 3, 299, 300, 301, 597, 598, 599}) {
    for (const int64_t row :
         {int64_t{-1}, int64_t{0}, num_rows / 2, num_rows - 1, num_rows, kInt64Min, kInt64Max}) {
      SCOPED_TRACE(::testing::Message() << "pair " << pair << " row " << row);
      LongColumn column = column_of();
      column.row_ids[pair] = row;
      column.ExpectChecked();
    }
    for (const int64_t id : {int64_t{-1}, int64_t{4}, kInt64Min, kInt64Max}) {
      SCOPED_TRACE(::testing::Message() << "pair " << pair << " id " << id);
      LongColumn column = column_of();
      column.ids[pair] = id;
      column.ExpectChecked();
      column.column.prune = false;
      column.ExpectChecked();
    }
  }
  LongColumn no_rows = column_of();
  no_rows.column.num_rows = 0;
  no_rows.ExpectChecked();
}

TEST(GroupLookup, FindsWhateverCheckColumnsFinds) {
  for (const int64_t dim : {0, 3, 8, 20}) {
    for (const int64_t pairs_in_row : {1, 3, 10, 40, 300}) {
      for (const bool is_weighted : {false, true}) {
        SCOPED_TRACE(::testing::Message() << dim << " " << pairs_in_row << " " << is_weighted);
        ExpectSpoiltPairsToBeFound(dim, pairs_in_row, is_weighted);
      }
    }
  }
}

TEST(CheckColumns, ADefaultIdMustExistWhereARowIsEmpty) {
  SmallColumn column;
  column.column.default_id = 9;
  EXPECT_TRUE(IsInvalid(column.Check(), {"id 9, which fills row 1", "[0, 4)"}));
  column.column.fill = false;
  EXPECT_TRUE(IsOk(column.Check()));
  column.column.fill = true;
  column.column.num_rows = 2;
  column.row_ids[1] = 1;
  EXPECT_TRUE(IsOk(column.Check()));
}

TEST(CheckColumns, APrunedIdMayBeAnything) {
  SmallColumn column;
  Array<float> weights{0, 1};
  column.ids[0] = kInt64Max;
  column.column.weights = weights.view();
  EXPECT_TRUE(IsOk(column.Check()));
  column.column.combiner = Combiner::kSum;  // zero weights are no reason to prune then
  EXPECT_TRUE(IsInvalid(column.Check(), {"id 9223372036854775807 at position 0"}));
}

TEST(GroupLookup, AZeroDenominatorGivesZeroWhateverTheEmbeddings) {
  SmallColumn small;
  Array<float> weights{1, -1};
  small.row_ids[1] = 0;
  small.table[1] = std::numeric_limits<float>::quiet_NaN();
  small.column.weights = weights.view();
  small.column.prune = false;
  small.column.combiner = Combiner::kMean;
  GroupPlan<float> plan;
  ASSERT_TRUE(IsOk(PlanGroupLookup<float>(SerialExec(), {&small.column, 1}, &plan)));
  Array<float> combined{-77, -77, -77};
  const CombinedOut<float> out{combined.data(), 1};
  EXPECT_TRUE(IsOk(RunGroupLookup<float>(SerialExec(), {&small.column, 1}, plan, {&out, 1})));
  EXPECT_EQ(combined.values(), (std::vector<float>{0, 0, 0}));
}

TEST(ColumnWork, CutsEachColumn) {
  ColumnWork work;
  ASSERT_TRUE(work.Add(3) && work.Add(0) && work.Add(4));
  std::vector<std::vector<int64_t>> parts;
  work.ForEach(2, 6,
               [&](int64_t c, int64_t first, int64_t last) { parts.push_back({c, first, last}); });
  EXPECT_EQ(parts, (std::vector<std::vector<int64_t>>{{0, 2, 3}, {2, 0, 3}}));
  EXPECT_FALSE(work.Add(kInt64Max));
}

}  // namespace
}  // namespace fused_embedding
