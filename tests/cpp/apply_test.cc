// Stage 7 on a table: the rows of the keys, and no other, make one step of the rule.

#include "tf_ops/core/optimizer/apply.h"

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

constexpr int64_t kTableDim = 5;

std::unique_ptr<EmbeddingTable> NewTable(ValueType type = ValueType::kFloat,
                                         int64_t num_shards = 0) {
  TableConfig config;
  config.layout.value_type = type;
  config.layout.dim = kTableDim;
  config.initializer.kind = InitializerKind::kUniform;
  config.initializer.a = -1;
  config.initializer.b = 1;
  config.initializer.seed = 7;
  config.num_shards = num_shards;
  std::unique_ptr<EmbeddingTable> table;
  EXPECT_TRUE(IsOk(EmbeddingTable::Create(config, &table)));
  return table;
}

Array<int64_t> ConsecutiveKeys(int64_t begin, int64_t end) {
  Array<int64_t> keys(end - begin);
  for (int64_t i = 0; i < keys.size(); ++i) keys[i] = begin + i;
  return keys;
}

template <typename T>
Array<T> Insert(EmbeddingTable* table, const Array<int64_t>& keys,
                Array<int64_t>* handles = nullptr) {
  Array<T> values(keys.size() * kTableDim);
  LookupInput in;
  in.keys = keys.view();
  LookupOutput out;
  out.values = reinterpret_cast<char*>(values.data());
  if (handles != nullptr) out.handles = handles->data();
  EXPECT_TRUE(IsOk(table->FindOrInsert(SerialExec(), in, &out)));
  return values;
}

template <typename T>
Array<T> Find(EmbeddingTable* table, const Array<int64_t>& keys) {
  Array<T> values(keys.size() * kTableDim);
  LookupInput in;
  in.keys = keys.view();
  LookupOutput out;
  out.values = reinterpret_cast<char*>(values.data());
  EXPECT_TRUE(IsOk(table->Find(SerialExec(), in, &out)));
  return values;
}

// A step of one rule, with an optimizer's name and hyperparameters.
struct Step {
  std::string rule = "adagrad";
  std::string slot_prefix = "Adagrad";
  std::vector<double> hyperparameters = {0.1, 0, 0.5};

  template <typename T>
  ApplyInput Input(const Array<int64_t>& keys, const Array<int64_t>& handles, const Array<T>& grads,
                   EmbeddingTable* table) const {
    ApplyInput in;
    in.table = table;
    in.keys = keys.view();
    in.handles = handles.view();
    in.grads = reinterpret_cast<const char*>(grads.span().data);
    in.slot_prefix = slot_prefix;
    in.hyperparameters = {hyperparameters.data(), static_cast<int64_t>(hyperparameters.size())};
    return in;
  }

  Status Run(const CpuExec& exec, const std::vector<ApplyInput>& inputs) const {
    RuleInfo info;
    FE_RETURN_IF_ERROR(FindRule(rule, &info));
    return Apply(exec, info, {inputs.data(), static_cast<int64_t>(inputs.size())});
  }

  template <typename T>
  Status Run(const CpuExec& exec, const Array<int64_t>& keys, const Array<int64_t>& handles,
             const Array<T>& grads, EmbeddingTable* table) const {
    return Run(exec, {Input(keys, handles, grads, table)});
  }
};

template <typename T>
Array<T> RandomGrads(Random* random, int64_t num_keys) {
  std::normal_distribution<double> normal;
  Array<T> grads(num_keys * kTableDim);
  for (int64_t i = 0; i < grads.size(); ++i) grads[i] = Rounded<T>(normal(*random));
  return grads;
}

template <typename T>
class ApplyOf : public ::testing::Test {};
TYPED_TEST_SUITE(ApplyOf, ValueTypes);

TYPED_TEST(ApplyOf, TrainsTheRowsOfTheKeysAlone) {
  Random random(1);
  const std::unique_ptr<EmbeddingTable> table = NewTable(kValueTypeOf<TypeParam>);
  const Array<int64_t> all = ConsecutiveKeys(0, 500), trained = ConsecutiveKeys(100, 300);
  const Array<TypeParam> before = Insert<TypeParam>(table.get(), all);
  std::vector<double> accumulators(static_cast<size_t>(trained.size() * kTableDim), 0.5);
  std::vector<double> want;
  for (int64_t i = 0; i < before.size(); ++i) want.push_back(Load(before[i]));
  for (int step = 0; step < 3; ++step) {
    const Array<TypeParam> grads = RandomGrads<TypeParam>(&random, trained.size());
    ASSERT_TRUE(IsOk(Step().Run(SerialExec(), trained, Array<int64_t>(), grads, table.get())));
    const Array<TypeParam> after = Find<TypeParam>(table.get(), all);
    for (int64_t i = 0; i < after.size(); ++i) {
      const int64_t k = i - 100 * kTableDim;
      if (k >= 0 && k < grads.size()) {
        const double g = Load(grads[k]);
        const size_t a = static_cast<size_t>(k);
        accumulators[a] += g * g;
        want[static_cast<size_t>(i)] -= 0.1 * g / std::sqrt(accumulators[a]);
      }
      EXPECT_TRUE(IsClose(after[i], want[static_cast<size_t>(i)], 4)) << "step " << step;
      want[static_cast<size_t>(i)] = Load(after[i]);  // rounded to the table's type
    }
  }
}

// Gives the bytes of the table after some steps.
std::string TrainSomeSteps(const CpuExec& exec, bool gives_handles, int64_t num_shards) {
  Random random(2);
  const std::unique_ptr<EmbeddingTable> table = NewTable(ValueType::kFloat, num_shards);
  const Array<int64_t> keys = ConsecutiveKeys(-20000, 20000);
  Array<int64_t> handles(keys.size());
  Insert<float>(table.get(), keys, &handles);
  for (int step = 0; step < 3; ++step) {
    const Array<float> grads = RandomGrads<float>(&random, keys.size());
    EXPECT_TRUE(IsOk(Step().Run(exec, keys, gives_handles ? std::move(handles) : Array<int64_t>(),
                                grads, table.get())));
    if (gives_handles) {
      handles = Array<int64_t>(keys.size());
      Insert<float>(table.get(), keys, &handles);
    }
  }
  return Find<float>(table.get(), keys).bytes();
}

TEST(Apply, GivesTheSameBitsForAnyThreadsShardsAndHandles) {
  const std::string want = TrainSomeSteps(SerialExec(), false, 1);
  for (const int num_threads : kThreadCounts) {
    for (const bool gives_handles : {false, true}) {
      for (const int64_t num_shards : {1, 4, 16}) {
        EXPECT_EQ(TrainSomeSteps(ThreadedExec(num_threads), gives_handles, num_shards), want)
            << num_threads << " threads, " << num_shards << " shards, handles " << gives_handles;
      }
    }
  }
}

TEST(Apply, LeavesKeysWithoutARow) {
  Random random(3);
  const std::unique_ptr<EmbeddingTable> table = NewTable();
  const Array<int64_t> keys = ConsecutiveKeys(0, 10);
  Array<int64_t> handles(10);
  Insert<float>(table.get(), keys, &handles);
  const Array<int64_t> erased = ConsecutiveKeys(0, 5);
  int64_t num_erased = 0;
  ASSERT_TRUE(IsOk(table->Erase(SerialExec(), erased.view(), &num_erased)));
  // The rows of the erased keys now belong to others, whose values must not change.
  const Array<int64_t> others = ConsecutiveKeys(100, 110);
  const Array<float> before = Insert<float>(table.get(), others);
  const Array<float> grads = RandomGrads<float>(&random, 10);
  ASSERT_TRUE(IsOk(Step().Run(SerialExec(), keys, handles, grads, table.get())));
  EXPECT_EQ(Find<float>(table.get(), others).bytes(), before.bytes());
  EXPECT_EQ(table->size(), 15);
}

TYPED_TEST(ApplyOf, KeepsTheSlotsOfSeveralOptimizersApart) {
  Random random(4);
  const Array<int64_t> keys = ConsecutiveKeys(0, 50), none;
  const Step momentum = {"momentum", "Momentum", {0.1, 0.9, 0}};
  const Step row_wise = {"row_wise_adagrad", "RowWise", {0.1, 1e-8, 0.2}};
  const Step twin = {"adagrad", "Adagrad_1", {0.1, 0, 0.5}};
  const Step ftrl = {"ftrl", "Ftrl", {0.1, -0.5, 0.01, 0.01, 0, 0.1}};
  const Array<TypeParam> no_grads(50 * kTableDim), grads = RandomGrads<TypeParam>(&random, 50);
  const auto alone = NewTable(kValueTypeOf<TypeParam>), shared = NewTable(kValueTypeOf<TypeParam>);
  Insert<TypeParam>(alone.get(), keys);
  Insert<TypeParam>(shared.get(), keys);
  // Steps without a gradient make slots around those of the others, and change no value.
  for (const Step& step : {momentum, row_wise, Step(), twin}) {
    ASSERT_TRUE(IsOk(step.Run(SerialExec(), keys, none, no_grads, shared.get())));
  }
  for (int i = 0; i < 2; ++i) {
    for (const Step& step : {Step(), ftrl}) {
      ASSERT_TRUE(IsOk(step.Run(SerialExec(), keys, none, grads, alone.get())));
      ASSERT_TRUE(IsOk(step.Run(SerialExec(), keys, none, grads, shared.get())));
    }
  }
  EXPECT_EQ(Find<TypeParam>(shared.get(), keys).bytes(),
            Find<TypeParam>(alone.get(), keys).bytes());

  std::vector<std::string> names;
  for (const Slot& slot : shared->layout().slots) names.push_back(slot.name);
  EXPECT_EQ(names, (std::vector<std::string>{"Momentum/momentum", "RowWise/accumulator",
                                             "Adagrad/accumulator", "Adagrad_1/accumulator",
                                             "Ftrl/accum", "Ftrl/linear"}));
}

TEST(Apply, RefusesWrongHyperparametersAndUnknownRules) {
  const std::unique_ptr<EmbeddingTable> table = NewTable();
  const Array<int64_t> keys, handles;
  const Array<float> grads;
  const auto run = [&](const Step& step) {
    return step.Run(SerialExec(), keys, handles, grads, table.get());
  };
  EXPECT_TRUE(IsInvalid(run({"adagrad", "A", {0.1}}),
                        {"adagrad", "takes 3", "got 1", "learning_rate, epsilon"}));
  EXPECT_TRUE(IsInvalid(run({"sgd", "S", {0.1, 0.2}}), {"takes 1", "got 2"}));
  EXPECT_TRUE(IsInvalid(run({"adadelta", "S", {0.1}}), {"adadelta", "sgd, momentum"}));
  // A refused step leaves no slots behind.
  EXPECT_TRUE(table->layout().slots.empty());
  // A slot of that name is there with another width.
  EXPECT_TRUE(IsOk(run({"adagrad", "A", {0.1, 0, 0.1}})));
  EXPECT_TRUE(IsInvalid(run({"row_wise_adagrad", "A", {0.1, 0, 0.1}}), {"A/accumulator"}));
}

TEST(Apply, ChecksEachTableBeforeItChangesOne) {
  const auto good = NewTable(), bad = NewTable();
  const Array<int64_t> keys = {1}, none, two = {1, 2};
  const Array<float> grads(kTableDim, 1.0f);
  Insert<float>(good.get(), keys);
  const Array<float> before = Find<float>(good.get(), keys);
  ASSERT_TRUE(IsOk(Step{"row_wise_adagrad", "Adagrad", {0.1, 0, 0.1}}.Run(SerialExec(), keys, none,
                                                                          grads, bad.get())));
  const Step step;
  const ApplyInput first = step.Input(keys, none, grads, good.get());
  EXPECT_TRUE(
      IsInvalid(step.Run(ThreadedExec(2), {first, step.Input(keys, none, grads, bad.get())}),
                {"Adagrad/accumulator"}));
  EXPECT_TRUE(IsInvalid(step.Run(SerialExec(), {first, step.Input(keys, two, grads, bad.get())}),
                        {"handles", "got 2"}));
  EXPECT_TRUE(IsInvalid(step.Run(SerialExec(), {first, first}), {"a table is there twice"}));
  EXPECT_TRUE(good->layout().slots.empty());
  EXPECT_EQ(Find<float>(good.get(), keys).bytes(), before.bytes());
}

TEST(Apply, StartsRowsMadeLaterAtTheInitialValueOfTheirSlots) {
  const std::unique_ptr<EmbeddingTable> table = NewTable();
  const Array<float> grads(kTableDim, 1.0f);
  const Array<int64_t> first = {1}, second = {2}, none;
  for (const Array<int64_t>* key : {&first, &second}) {
    const Array<float> before = Insert<float>(table.get(), *key);
    ASSERT_TRUE(IsOk(Step().Run(SerialExec(), *key, none, grads, table.get())));
    const Array<float> after = Find<float>(table.get(), *key);
    for (int64_t d = 0; d < kTableDim; ++d) {
      EXPECT_NEAR(before[d] - after[d], 0.1 / std::sqrt(1.5), 1e-6);
    }
  }
}

}  // namespace
}  // namespace fused_embedding
