// The step on arrays: against the rule's own Update, row by row, on gradients whose repeats were
// summed one after the other.

#include "tests/cpp/sparse_apply_testing.h"

namespace fused_embedding {
namespace {

Status Apply(const CpuExec& exec, const std::string& rule, std::vector<SparseUpdate> updates,
             const Numbers& hyperparameters) {
  const SparseApplyInput in = {
      Rule(rule),
      std::move(updates),
      {hyperparameters.data(), static_cast<int64_t>(hyperparameters.size())}};
  SparseApplyPlan plan;
  FE_RETURN_IF_ERROR(PlanSparseApply(exec, in, &plan));
  RunSparseApply(exec, in, &plan);
  return Status();
}

template <typename T>
class SparseApply : public ::testing::Test {};
TYPED_TEST_SUITE(SparseApply, ValueTypes);

template <template <typename> class RuleOf, typename T>
void ExpectStepsAsTheRule(int64_t dim, const std::vector<int64_t>& indices) {
  const std::string name = RuleOf<double>::kName;
  if (kHyperparameters.count(name) == 0) return;
  SCOPED_TRACE(name + ", dim " + std::to_string(dim));
  Random random(static_cast<uint64_t>(dim));
  Table<T> table(9, dim, Rule(name).num_slots, indices, &random);
  Array<double> values = AsDouble(table.values);
  std::vector<Array<double>> slots;
  for (const Array<T>& slot : table.slots) slots.push_back(AsDouble(slot));
  Numbers hyperparameters = kHyperparameters.at(name);
  for (double& h : hyperparameters) h = static_cast<ComputeType<T>>(h);
  ApplyNaively<RuleOf<double>>(hyperparameters, table, &values, &slots);
  ASSERT_TRUE(IsOk(Apply(SerialExec(), name, {table.Update()}, hyperparameters)));
  ExpectClose(table.values, values);
  for (size_t k = 0; k < slots.size(); ++k) ExpectClose(table.slots[k], slots[k]);
}

TYPED_TEST(SparseApply, UpdatesEachRowOnceByTheSumOfItsGradients) {
  const std::vector<std::vector<int64_t>> all_indices = {
      {}, {8}, {0, 2, 7}, {7, 2, 0}, {3, 3}, {1, 1, 5}, {8, 0, 8, 3, 0, 8, 4}};
  for (const int64_t dim : {1, 3, 8, 16, 63, 64, 65, 130}) {
    for (const std::vector<int64_t>& indices : all_indices) {
#define FE_EXPECT(RuleOf) ExpectStepsAsTheRule<RuleOf, TypeParam>(dim, indices);
      FE_FOR_EACH_RULE(FE_EXPECT)
#undef FE_EXPECT
    }
  }
}

// Repeats are found by a bit for each row of the table, or by numbering the indices where the table
// is much larger or there are many threads.
TEST(SparseApply, FindsRepeatsInTablesOfAnySize) {
  const Numbers hyperparameters = {0.5, 0, 0.1};
  const std::vector<std::vector<int64_t>> all_indices = {
      {63, 64, 1, 0, 65}, {64, 0, 64}, {1, 5, 1}, {0, 63, 64, 63}};
  for (const std::vector<int64_t>& indices : all_indices) {
    for (const int64_t num_rows : {66, 20000}) {
      for (const int num_threads : {1, 8}) {
        Random random(3);
        Table<float> table(num_rows, 3, 1, indices, &random);
        Array<double> values = AsDouble(table.values);
        std::vector<Array<double>> slots;
        slots.push_back(AsDouble(table.slots[0]));
        ApplyNaively<Adagrad<double>>(hyperparameters, table, &values, &slots);
        ASSERT_TRUE(
            IsOk(Apply(ThreadedExec(num_threads), "adagrad", {table.Update()}, hyperparameters)));
        ExpectClose(table.values, values);
        ExpectClose(table.slots[0], slots[0]);
      }
    }
  }
}

// Tables of different types and sizes, with repeats and without, one of them empty.
struct Tables {
  Tables()
      : wide(5000, 17, 1, RandomIndices(6000, 5000, &random), &random),
        sorted(40, 4, 1, {1, 5, 9, 39}, &random),
        empty(0, 8, 1, {}, &random),
        half(3000, 8, 1, RandomIndices(900, 3000, &random), &random) {}

  std::vector<SparseUpdate> Updates() {
    return {wide.Update(), sorted.Update(), empty.Update(), half.Update()};
  }
  std::string bytes() const { return wide.bytes() + sorted.bytes() + empty.bytes() + half.bytes(); }

  Random random{3};
  Table<float> wide;
  Table<double> sorted;
  Table<float> empty;
  Table<Half> half;
};

TEST(SparseApply, GivesTheSameBitsForAnyNumberOfThreadsAndTables) {
  const Numbers& hyperparameters = kHyperparameters.at("adagrad");
  Tables one_by_one;
  for (const SparseUpdate& update : one_by_one.Updates()) {
    ASSERT_TRUE(IsOk(Apply(SerialExec(), "adagrad", {update}, hyperparameters)));
  }
  EXPECT_NE(one_by_one.bytes(), Tables().bytes());
  for (const int num_threads : kThreadCounts) {
    Tables together;
    ASSERT_TRUE(
        IsOk(Apply(ThreadedExec(num_threads), "adagrad", together.Updates(), hyperparameters)));
    EXPECT_EQ(together.bytes(), one_by_one.bytes()) << num_threads << " threads";
  }
}

TEST(SparseApply, TakesIndicesOf32Bits) {
  Random random(1), same_random(1);
  Table<float> got(9, 5, 1, {8, 0, 8}, &random), want(9, 5, 1, {8, 0, 8}, &same_random);
  const Array<int32_t> indices = {8, 0, 8};
  SparseUpdate update = got.Update();
  update.indices = indices.view();
  ASSERT_TRUE(IsOk(Apply(SerialExec(), "adagrad", {update}, {0.5, 0, 0.1})));
  ASSERT_TRUE(IsOk(Apply(SerialExec(), "adagrad", {want.Update()}, {0.5, 0, 0.1})));
  EXPECT_EQ(got.bytes(), want.bytes());
}

TEST(SparseApply, SumsInInputOrder) {
  Random random(1);
  Table<float> table(2, 1, 0, {1, 0, 1, 1}, &random);
  table.values = {0, 0};
  table.grads = {1e8f, 5, -1e8f, 1};  // in another order the 1 would be lost
  ASSERT_TRUE(IsOk(Apply(SerialExec(), "sgd", {table.Update()}, {1})));
  EXPECT_EQ(table.values.values(), (std::vector<float>{-5, -1}));
}

TEST(SparseApply, SumsIn32BitsAndRoundsOnce) {
  Random random(1);
  Table<BFloat16> table(1, 1, 0, {0, 0, 0}, &random);
  table.values = {Rounded<BFloat16>(0)};
  table.grads = {Rounded<BFloat16>(256), Rounded<BFloat16>(1), Rounded<BFloat16>(1)};
  ASSERT_TRUE(IsOk(Apply(SerialExec(), "sgd", {table.Update()}, {1})));
  EXPECT_EQ(Load(table.values[0]), -258.0f);  // 256 + 1 is 256 in 16 bits
}

TEST(SparseApply, NamesAnIndexOutsideAndChangesNothing) {
  for (const int64_t bad : {int64_t{9}, int64_t{-1}, kInt64Min, kInt64Max}) {
    Random random(2);
    Table<float> good(9, 4, 1, {1, 2}, &random), table(9, 4, 1, {8, 0, bad, 3, bad}, &random);
    const std::string before = good.bytes() + table.bytes();
    EXPECT_TRUE(
        IsInvalid(Apply(ThreadedExec(2), "adagrad", {good.Update(), table.Update()}, {0.5, 0, 0.1}),
                  {"index", std::to_string(bad).c_str(), "position 2", "indices[1]", "[0, 9)"}));
    EXPECT_EQ(good.bytes() + table.bytes(), before);
  }
}

TEST(SparseApply, RejectsRulesWithANumberARow) {
  EXPECT_TRUE(IsOk(CheckRuleForArrays(Rule("centered_rmsprop"))));
  EXPECT_TRUE(IsInvalid(CheckRuleForArrays(Rule("row_wise_adagrad")), {"one number a row"}));
  EXPECT_TRUE(IsInvalid(Apply(SerialExec(), "adagrad_decay", {}, {1, 1, 1, 1, 1}),
                        {"adagrad_decay", "one number a row"}));
}

TEST(SparseApply, RejectsAnotherNumberOfHyperparameters) {
  EXPECT_TRUE(IsInvalid(Apply(SerialExec(), "adagrad", {}, {1}), {"takes 3", "got 1"}));
}

TEST(SparseApply, OfNoTablesIsNothing) {
  EXPECT_TRUE(IsOk(Apply(ThreadedExec(2), "sgd", {}, {0.5})));
}

}  // namespace
}  // namespace fused_embedding
