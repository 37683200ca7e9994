// The rules on plain memory: against literal results of stock TensorFlow, and against each formula
// written once more, value by value, in double.

#include "tests/cpp/core_testing.h"
#include "tests/cpp/simd_levels.h"
#include "tf_ops/core/optimizer/apply.h"
#include "tf_ops/core/optimizer/rules.h"
#include "tf_ops/core/optimizer/update_rows.h"

namespace fused_embedding {
namespace {

using Numbers = std::vector<double>;

RuleInfo Rule(const std::string& name) {
  RuleInfo rule;
  EXPECT_TRUE(IsOk(FindRule(name, &rule)));
  return rule;
}

Span<const double> SpanOf(const Numbers& numbers) {
  return {numbers.data(), static_cast<int64_t>(numbers.size())};
}

// One row in memory of exactly its size: values, then slots, `T` and doubles or floats.
template <typename T>
struct Row {
  using C = ComputeType<T>;

  Row(const RuleInfo& rule, const Numbers& hyperparameters, int64_t dim) : values(dim) {
    for (const Slot& slot : rule.Slots(dim, SpanOf(hyperparameters))) {
      slots.emplace_back(slot.width, static_cast<C>(slot.initial));
    }
  }

  std::string bytes() const {
    std::string bytes = values.bytes();
    for (const Array<C>& slot : slots) bytes += slot.bytes();
    return bytes;
  }

  Array<T> values;
  std::vector<Array<C>> slots;
};

// Updates rows[positions[i]] by grads[positions[i]]; the slots lie wherever they were allocated.
template <typename T>
void Update(const RuleInfo& rule, const Numbers& hyperparameters, const Array<T>& grad,
            Row<T>* row) {
  char* start = reinterpret_cast<char*>(row->values.data());
  std::vector<int64_t> offsets;
  for (auto& slot : row->slots) offsets.push_back(reinterpret_cast<char*>(slot.data()) - start);
  const int64_t position = 0;
  const RowBatch batch = {&start, &position, 1};
  const char* grads = reinterpret_cast<const char*>(grad.span().data);
  UpdateRowsOfRules<T>()[rule.index](
      {batch, grads, row->values.size(), 0, 0, offsets.data(), hyperparameters.data()});
}

// With the powers of beta1 and beta2 of step `step`, the first being 1, where the rule has them.
Numbers AtStep(const RuleInfo& rule, Numbers hyperparameters, int step) {
  if (rule.name.substr(0, 4) == "adam") {
    hyperparameters[4] = std::pow(hyperparameters[1], step);
    hyperparameters[5] = std::pow(hyperparameters[2], step);
  }
  if (rule.name == "adagrad_decay") hyperparameters[1] = step;
  return hyperparameters;
}

struct StockCase {
  const char* rule;
  Numbers hyperparameters;
  Numbers values;
  std::vector<Numbers> slots;
};

// tf.compat.v1.train of TensorFlow 2.21: a [1, 3] variable after three sparse updates; keras_*:
// Keras 3.15, dense updates.
const StockCase kStockCases[] = {
    {"sgd", {0.1}, {0.42999998, -0.29000002, 0.045000002}, {}},
    {"momentum",
     {0.1, 0.9, 0},
     {0.4048, -0.24860001, -0.026550002},
     {{0.67199999, -0.053999975, 0.47049999}}},
    {"momentum",
     {0.1, 0.9, 1},
     {0.34432, -0.24374001, -0.068895005},
     {{0.67199999, -0.053999975, 0.47049999}}},
    {"adagrad",
     {0.1, 0, 0.1},
     {0.38835084, -0.27226281, 0.018590635},
     {{0.50999999, 0.35000002, 0.63249999}}},
    {"rmsprop",
     {0.1, 0.8, 0.7, 1e-3},
     {0.39439917, -0.26565829, -0.02479589},
     {{0.59072006, 0.54688001, 0.59872007}, {0.080208912, 0.0039055231, 0.03389515}}},
    {"centered_rmsprop",
     {0.1, 0.8, 0.7, 1e-3},
     {0.39322209, -0.26528814, -0.026759826},
     {{0.59072006, 0.54688001, 0.59872007},
      {0.1296, -0.0032000036, 0.078399993},
      {0.081349902, 0.0038228408, 0.034625232}}},
    {"adam",
     {0.1, 0.9, 0.99, 1e-3, 0, 0},
     {0.31345242, -0.18688862, -0.10168147},
     {{0.06720002, -0.0054000006, 0.047050007}, {0.0040910365, 0.0024591577, 0.0052754977}}},
    {"ftrl",
     {0.1, -0.5, 0, 0, 0, 0.1},
     {-0.034226287, -0.086210728, -0.080182314},
     {{0.50999999, 0.35000002, 0.63249999}, {0.24442458, 0.51002955, 0.63768888}}},
    {"ftrl",
     {0.1, -0.5, 0.3, 0.2, 0, 0.2},
     {-0.022725023, -0.0082101356, -0.028951352},
     {{0.61000001, 0.45000002, 0.73250002}, {0.48657814, 0.35835934, 0.5593642}}},
    {"ftrl",
     {0.1, -0.7, 0.1, 0.2, 0.05, 0.1},
     {-0.055398088, -0.065554515, -0.062247239},
     {{0.50999999, 0.35000002, 0.63249999}, {0.46793449, 0.44059843, 0.57661176}}},
    {"keras_momentum",
     {0.1, 0.9, 0},
     {0.4048, -0.2486, -0.026550002},
     {{-0.067200005, 0.005400001, -0.04705}}},
    {"keras_momentum",
     {0.1, 0.9, 1},
     {0.34432, -0.24374, -0.068895005},
     {{-0.067200005, 0.005400001, -0.04705}}},
    {"keras_adagrad",
     {0.1, 1e-3, 0.1},
     {0.38853735, -0.27234095, 0.018723054},
     {{0.51, 0.35000002, 0.6325}}},
    {"keras_rmsprop",
     {0.1, 0.8, 1e-3},
     {0.17981938, -0.22186138, -0.18359846},
     {{0.07872, 0.03488, 0.08672}}},
    {"keras_centered_rmsprop",
     {0.1, 0.8, 1e-3},
     {0.1322557, -0.19682388, -0.21505916},
     {{0.07872, 0.03488, 0.08672}, {0.1296, -0.003200001, 0.0784}}},
};

TEST(Rules, GiveTheNumbersOfStockTensorFlow) {
  const Array<float> grads[] = {{0.2f, -0.4f, 0.05f}, {-0.1f, 0.3f, 0.7f}, {0.6f, 0.0f, -0.2f}};
  constexpr double kTolerance = 4e-7;
  for (const StockCase& stock : kStockCases) {
    const RuleInfo rule = Rule(stock.rule);
    Row<float> row(rule, stock.hyperparameters, 3);
    row.values = {0.5f, -0.3f, 0.1f};
    for (int step = 1; step <= 3; ++step) {
      Update(rule, AtStep(rule, stock.hyperparameters, step), grads[step - 1], &row);
    }
    ASSERT_EQ(row.slots.size(), stock.slots.size()) << stock.rule;
    for (int64_t d = 0; d < 3; ++d) {
      const size_t i = static_cast<size_t>(d);
      EXPECT_NEAR(row.values[d], stock.values[i], kTolerance) << stock.rule << ", value " << d;
      for (size_t s = 0; s < stock.slots.size(); ++s) {
        EXPECT_NEAR(row.slots[s][d], stock.slots[s][i], kTolerance)
            << stock.rule << ", slot " << s << ", value " << d;
      }
    }
  }
}

// --- The formulas once more ---

// One value and its slots; a slot of one number a row is handled by the caller.
using Formula = void (*)(const Numbers& h, double g, double* w, double* s);

void SgdFormula(const Numbers& h, double g, double* w, double*) { *w -= h[0] * g; }

void MomentumFormula(const Numbers& h, double g, double* w, double* s) {
  s[0] = h[1] * s[0] + g;
  *w -= h[2] != 0 ? h[0] * (g + h[1] * s[0]) : h[0] * s[0];
}

void AdagradFormula(const Numbers& h, double g, double* w, double* s) {
  s[0] += g * g;
  *w -= h[0] * g / (std::sqrt(s[0]) + h[1]);
}

void RmsPropFormula(const Numbers& h, double g, double* w, double* s) {
  s[0] += (1 - h[1]) * (g * g - s[0]);
  s[1] = h[2] * s[1] + h[0] * g / std::sqrt(s[0] + h[3]);
  *w -= s[1];
}

void CenteredRmsPropFormula(const Numbers& h, double g, double* w, double* s) {
  s[0] += (1 - h[1]) * (g * g - s[0]);
  s[1] += (1 - h[1]) * (g - s[1]);
  s[2] = h[2] * s[2] + h[0] * g / std::sqrt(s[0] - s[1] * s[1] + h[3]);
  *w -= s[2];
}

void AdamFormula(const Numbers& h, double g, double* w, double* s) {
  s[0] += (1 - h[1]) * (g - s[0]);
  s[1] += (1 - h[2]) * (g * g - s[1]);
  *w -= h[0] * std::sqrt(1 - h[5]) / (1 - h[4]) * s[0] / (std::sqrt(s[1]) + h[3]);
}

void AdamWFormula(const Numbers& h, double g, double* w, double* s) {
  *w *= 1 - h[0] * h[6];
  AdamFormula(h, g, w, s);
}

void AdamAsyncFormula(const Numbers& h, double g, double* w, double* s) {
  if (h[6] == 0) return AdamFormula(h, g, w, s);
  s[1] += (1 - h[2]) * (g * g - s[1]);
  s[0] = h[1] * s[0] + h[0] * g / std::sqrt(s[1] + h[3]);
  *w -= s[0];
}

void FtrlFormula(const Numbers& h, double g, double* w, double* s) {
  const double accum = s[0] + g * g;
  const double sigma = (std::pow(accum, -h[1]) - std::pow(s[0], -h[1])) / h[0];
  s[1] += g + 2 * h[4] * *w - sigma * *w;
  s[0] = accum;
  const double clipped = std::min(std::max(s[1], -h[2]), h[2]);
  *w = (clipped - s[1]) / (std::pow(accum, -h[1]) / h[0] + 2 * h[3]);
}

void KerasMomentumFormula(const Numbers& h, double g, double* w, double* s) {
  s[0] = h[1] * s[0] - h[0] * g;
  *w += h[2] != 0 ? h[1] * s[0] - h[0] * g : s[0];
}

void KerasAdagradFormula(const Numbers& h, double g, double* w, double* s) {
  s[0] += g * g;
  *w -= h[0] * g / std::sqrt(s[0] + h[1]);
}

void KerasRmsPropFormula(const Numbers& h, double g, double* w, double* s) {
  s[0] += (1 - h[1]) * (g * g - s[0]);
  *w -= h[0] * g / std::sqrt(s[0] + h[2]);
}

void KerasCenteredRmsPropFormula(const Numbers& h, double g, double* w, double* s) {
  s[0] += (1 - h[1]) * (g * g - s[0]);
  s[1] += (1 - h[1]) * (g - s[1]);
  *w -= h[0] * g / std::sqrt(s[0] - s[1] * s[1] + h[2]);
}

// Its accumulator is one number a row: s[0] is already the sum with mean g^2.
void RowWiseAdagradFormula(const Numbers& h, double g, double* w, double* s) {
  *w -= h[0] * g / (std::sqrt(s[0]) + h[1]);
}

// s[0] is already decayed.
void AdagradDecayFormula(const Numbers& h, double g, double* w, double* s) {
  s[0] += g * g;
  *w -= h[0] * g / std::sqrt(s[0]);
}

struct FormulaCase {
  const char* rule;
  Numbers hyperparameters;
  Formula formula;
};

const FormulaCase kFormulaCases[] = {
    {"sgd", {0.3}, SgdFormula},
    {"momentum", {0.3, 0.8, 0}, MomentumFormula},
    {"momentum", {0.3, 0.8, 1}, MomentumFormula},
    {"adagrad", {0.3, 0.02, 0.1}, AdagradFormula},
    {"adagrad_decay", {0.3, 0, 3, 0.7, 0.1}, AdagradDecayFormula},
    {"row_wise_adagrad", {0.3, 0.02, 0.1}, RowWiseAdagradFormula},
    {"rmsprop", {0.3, 0.8, 0.7, 0.01}, RmsPropFormula},
    {"centered_rmsprop", {0.3, 0.8, 0.7, 0.01}, CenteredRmsPropFormula},
    {"adam", {0.3, 0.8, 0.9, 0.01, 0, 0}, AdamFormula},
    {"adamw", {0.3, 0.8, 0.9, 0.01, 0, 0, 0.2}, AdamWFormula},
    {"adam_async", {0.3, 0.8, 0.9, 0.01, 0, 0, 0}, AdamAsyncFormula},
    {"adam_async", {0.3, 0.8, 0.9, 0.01, 0, 0, 1}, AdamAsyncFormula},
    {"ftrl", {0.3, -0.5, 0.1, 0.2, 0.03, 0.1}, FtrlFormula},
    {"ftrl", {0.3, -0.8, 0.1, 0.2, 0.03, 0.1}, FtrlFormula},
    {"keras_momentum", {0.3, 0.8, 0}, KerasMomentumFormula},
    {"keras_momentum", {0.3, 0.8, 1}, KerasMomentumFormula},
    {"keras_adagrad", {0.3, 0.02, 0.1}, KerasAdagradFormula},
    {"keras_rmsprop", {0.3, 0.8, 0.01}, KerasRmsPropFormula},
    {"keras_centered_rmsprop", {0.3, 0.8, 0.01}, KerasCenteredRmsPropFormula},
};

// What a rule does to a whole row, in double, after its slots were read from `row`.
template <typename T>
class Expected {
 public:
  Expected(const FormulaCase& test, const Numbers& h, const Array<T>& grad, const Row<T>& row)
      : values_(static_cast<size_t>(grad.size())), slots_(row.slots.size()) {
    for (size_t s = 0; s < slots_.size(); ++s) {
      for (const auto x : row.slots[s].values()) slots_[s].push_back(x);
    }
    BeforeTheValues(test, h, grad);
    for (int64_t d = 0; d < grad.size(); ++d) {
      const size_t i = static_cast<size_t>(d);
      Numbers s;
      for (const Numbers& slot : slots_) s.push_back(slot.size() == 1 ? slot[0] : slot[i]);
      values_[i] = Load(row.values[d]);
      test.formula(h, Load(grad[d]), &values_[i], s.data());
      for (size_t k = 0; k < s.size(); ++k) slots_[k][slots_[k].size() == 1 ? 0 : i] = s[k];
    }
  }

  void Check(const Row<T>& got, const std::string& what) const {
    for (size_t i = 0; i < values_.size(); ++i) {
      const int64_t d = static_cast<int64_t>(i);
      EXPECT_TRUE(IsClose(got.values[d], values_[i], 4)) << what << ", value " << d;
    }
    for (size_t s = 0; s < slots_.size(); ++s) {
      for (size_t i = 0; i < slots_[s].size(); ++i) {
        EXPECT_TRUE(IsClose(got.slots[s][static_cast<int64_t>(i)], slots_[s][i], 4))
            << what << ", slot " << s << ", number " << i;
      }
    }
  }

 private:
  void BeforeTheValues(const FormulaCase& test, const Numbers& h, const Array<T>& grad) {
    if (test.rule == std::string("row_wise_adagrad")) {
      double sum = 0;
      for (int64_t d = 0; d < grad.size(); ++d) sum += std::pow(double{Load(grad[d])}, 2);
      slots_[0][0] += sum / static_cast<double>(grad.size());
    }
    if (test.rule == std::string("adagrad_decay") && std::floor(h[1] / h[2]) > slots_[1][0]) {
      for (double& accumulator : slots_[0]) accumulator = std::max(accumulator * h[3], h[4]);
      slots_[1][0] += 1;
    }
  }

  Numbers values_;
  std::vector<Numbers> slots_;
};

template <typename T>
Array<T> RandomRow(Random* random, int64_t dim) {
  std::normal_distribution<double> normal;
  Array<T> row(dim);
  for (int64_t d = 0; d < dim; ++d) row[d] = Rounded<T>(normal(*random));
  return row;
}

template <typename T>
class RulesOf : public ::testing::Test {};
TYPED_TEST_SUITE(RulesOf, ValueTypes);

TYPED_TEST(RulesOf, FollowTheirFormulas) {
  Random random(3);
  std::set<std::string> seen;
  for (const FormulaCase& test : kFormulaCases) {
    const RuleInfo rule = Rule(test.rule);
    seen.insert(test.rule);
    for (const int64_t dim : {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 100, 128}) {
      Row<TypeParam> row(rule, test.hyperparameters, dim);
      row.values = RandomRow<TypeParam>(&random, dim);
      for (int step = 1; step <= 8; ++step) {
        const Numbers h = AtStep(rule, test.hyperparameters, step);
        const Array<TypeParam> grad = RandomRow<TypeParam>(&random, dim);
        const Expected<TypeParam> expected(test, h, grad, row);
        Update(rule, h, grad, &row);
        expected.Check(
            row, rule.name + ", dim " + std::to_string(dim) + ", step " + std::to_string(step));
      }
    }
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), UpdateRowsOfRules<TypeParam>().size)
      << "a rule of rules.h has no case here";
}

template <typename RuleClass, typename T, size_t... kSlot>
void ExpectTheSameAtEveryLevel(Random* random, const Numbers& h, std::index_sequence<kSlot...>) {
  const RuleInfo rule = Rule(RuleClass::kName);
  for (const int64_t dim : {1, 5, 16, 33, 64, 70}) {
    const Array<T> values = RandomRow<T>(random, dim);
    const Array<T> grad = RandomRow<T>(random, dim);
    std::vector<std::string> results;
    ForEachSimdLevel([&]() FE_INLINE_LAMBDA {
      Row<T> row(rule, h, dim);
      for (int64_t d = 0; d < dim; ++d) row.values[d] = values[d];
      RuleClass(h.data()).Update(row.values.data(), grad.span().data, dim,
                                 row.slots[kSlot].data()...);
      results.push_back(row.bytes());
    });
    for (const std::string& result : results) {
      EXPECT_EQ(result, results[0]) << rule.name << ", dim " << dim;
    }
  }
}

TYPED_TEST(RulesOf, GiveTheSameBitsAtEveryLevel) {
  Random random(4);
  for (const FormulaCase& test : kFormulaCases) {
#define FE_CHECK(RuleClass)                                        \
  if (test.rule == std::string(RuleClass<float>::kName)) {         \
    using C = ComputeType<TypeParam>;                              \
    ExpectTheSameAtEveryLevel<RuleClass<C>, TypeParam>(            \
        &random, AtStep(Rule(test.rule), test.hyperparameters, 2), \
        std::make_index_sequence<RuleClass<C>::kSlots.size()>());  \
  }
    FE_FOR_EACH_RULE(FE_CHECK)
#undef FE_CHECK
  }
}

TEST(Rules, TakeRowsByPositionAndPassOverMissingOnes) {
  const RuleInfo rule = Rule("adagrad");
  const Numbers h = {0.1, 0, 0.5};
  constexpr int64_t kDim = 16, kNumRows = 40;
  Array<float> rows(kNumRows * 2 * kDim, 0.5f);  // values and accumulators
  Array<float> grads(kNumRows * kDim);
  for (int64_t i = 0; i < kNumRows * kDim; ++i) grads[i] = static_cast<float>(i / kDim);
  Array<char*> starts(kNumRows);
  Array<int64_t> positions(kNumRows);
  for (int64_t i = 0; i < kNumRows; ++i) {
    positions[i] = (i * 7) % kNumRows;
    starts[i] = i % 3 == 0 ? nullptr : reinterpret_cast<char*>(rows.data() + i * 2 * kDim);
  }
  const int64_t slot_offset = kDim * 4;
  UpdateRowsOfRules<float>()[rule.index]({{starts.data(), positions.data(), kNumRows},
                                          reinterpret_cast<const char*>(grads.data()),
                                          kDim,
                                          2 * kDim * 4,
                                          0,
                                          &slot_offset,
                                          h.data()});
  for (int64_t i = 0; i < kNumRows; ++i) {
    const float g = starts[i] == nullptr ? 0.0f : static_cast<float>((i * 7) % kNumRows);
    for (int64_t d = 0; d < kDim; ++d) {
      EXPECT_FLOAT_EQ(rows[(2 * i + 1) * kDim + d], 0.5f + g * g) << "row " << i;
      EXPECT_FLOAT_EQ(rows[2 * i * kDim + d], 0.5f - 0.1f * g / std::sqrt(0.5f + g * g))
          << "row " << i;
    }
  }
}

TEST(Rules, DecayOnceAnUpdateUntilTheyHaveCaughtUp) {
  const RuleInfo rule = Rule("adagrad_decay");
  Numbers h = {0.1, 25, 10, 0.5, 1.0};  // two periods have passed
  Row<float> row(rule, h, 1);
  row.slots[0][0] = 8;
  const Array<float> grad = {0.0f};
  for (const float want : {4.0f, 2.0f, 2.0f}) {
    Update(rule, h, grad, &row);
    EXPECT_EQ(row.slots[0][0], want);
  }
  EXPECT_EQ(row.slots[1][0], 2.0f);
  h[1] = 49;
  for (const float want : {1.0f, 1.0f}) {  // not below the initial value
    Update(rule, h, grad, &row);
    EXPECT_EQ(row.slots[0][0], want);
  }
}

TEST(Rules, KeepFloatSlotsBesideSixteenBitValues) {
  const RuleInfo rule = Rule("adagrad");
  const Numbers h = {0.1, 0, 256};
  Row<Half> row(rule, h, 1);
  const Array<Half> grad = {Rounded<Half>(0.25)};
  for (int step = 0; step < 100; ++step) Update(rule, h, grad, &row);
  EXPECT_EQ(row.slots[0][0], 262.25f);  // in binary16 each addition would be rounded away
}

TEST(FindRule, NamesTheRulesThatExist) {
  RuleInfo rule;
  EXPECT_TRUE(
      IsInvalid(FindRule("adadelta", &rule), {"sgd, momentum, adagrad", "ftrl", "adadelta"}));
  EXPECT_TRUE(IsInvalid(FindRule("", &rule), {"rule must be one of"}));
}

TEST(FindRule, GivesSlotsWithInitialValues) {
  const auto describe = [](const char* name, const Numbers& h) {
    std::ostringstream text;
    for (const Slot& slot : Rule(name).Slots(6, SpanOf(h))) {
      text << slot.name << ' ' << slot.width << ' ' << slot.initial << ';';
    }
    return text.str();
  };
  EXPECT_EQ(describe("sgd", {0.1}), "");
  EXPECT_EQ(describe("momentum", {0.1, 0.9, 0}), "momentum 6 0;");
  EXPECT_EQ(describe("adagrad", {0.1, 0, 0.25}), "accumulator 6 0.25;");
  EXPECT_EQ(describe("adagrad_decay", {0.1, 1, 10, 0.9, 0.25}),
            "accumulator 6 0.25;accumulator_decay_power 1 0;");
  EXPECT_EQ(describe("row_wise_adagrad", {0.1, 0, 0.25}), "accumulator 1 0.25;");
  EXPECT_EQ(describe("rmsprop", {0.1, 0.9, 0, 0}), "rms 6 1;momentum 6 0;");
  EXPECT_EQ(describe("centered_rmsprop", {0.1, 0.9, 0, 0}), "rms 6 1;mg 6 0;momentum 6 0;");
  EXPECT_EQ(describe("adam", {0.1, 0.9, 0.9, 0, 0, 0}), "m 6 0;v 6 0;");
  EXPECT_EQ(describe("adamw", {0.1, 0.9, 0.9, 0, 0, 0, 0}), "m 6 0;v 6 0;");
  EXPECT_EQ(describe("adam_async", {0.1, 0.9, 0.9, 0, 0, 0, 0}), "m 6 0;v 6 0;");
  EXPECT_EQ(describe("ftrl", {0.1, -0.5, 0, 0, 0, 0.25}), "accum 6 0.25;linear 6 0;");
}

}  // namespace
}  // namespace fused_embedding
