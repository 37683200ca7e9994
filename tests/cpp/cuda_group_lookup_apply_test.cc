// Gradient and step at once: against the rules written out, on the gradients that the backward pass
// alone gives, which cuda_group_lookup_test.cc compares with their definition.

#include "tests/cpp/cuda_group_testing.h"
#include "tf_ops/core/optimizer/group_lookup_apply.cu.h"

namespace fused_embedding {
namespace {

constexpr double kLearningRate = 0.5, kEpsilon = 0.25;
const double kNumbers[] = {kLearningRate, kEpsilon, 0};

RuleInfo RuleOf(const std::string& name) {
  RuleInfo rule;
  EXPECT_TRUE(IsOk(FindRule(name, &rule)));
  return rule;
}

// A table and its slot, which is of any type.
struct TableAfter {
  Array<double> values, slot;
};

// Slot is T of an accumulator for each value, ComputeType<T> of one for each row.
template <typename T, typename Slot>
class SteppedGroup : public DeviceGroup<T> {
 public:
  using Gradient = typename GroupCase<T>::Gradient;

  SteppedGroup(int seed, bool has_number_a_row) : DeviceGroup<T>(seed) {
    Random random(static_cast<uint64_t>(seed));
    for (size_t t = 0; t < this->flat_tables_.size(); ++t) {
      const int64_t num_rows = static_cast<int64_t>(this->tables_[t].size());
      Array<Slot> slot(has_number_a_row ? num_rows : this->flat_tables_[t].size());
      for (Slot& number : slot.span()) {
        number = Rounded<Slot>(std::uniform_real_distribution<double>(0.5, 1)(random));
      }
      device_slots_.emplace_back(slot);
      before_.push_back({AsDouble(this->flat_tables_[t]), AsDouble(slot)});
    }
  }

  const std::vector<TableAfter>& before() const { return before_; }

  std::string Step(const GpuExec& gpu, const std::string& name) {
    GpuGroupGradPlan<T> plan;
    this->PlanBackward(gpu, &plan);
    std::vector<ArrayTable<T>> tables;
    for (size_t t = 0; t < device_slots_.size(); ++t) {
      ArrayTable<T> table;
      table.values = this->device_tables_[t].data();
      table.slots[0] = device_slots_[t].data();
      table.dim = static_cast<int64_t>(this->tables_[t][0].size());
      tables.push_back(table);
    }
    const RuleInfo rule = RuleOf(name);
    const Span<const double> numbers = {kNumbers,
                                        static_cast<int64_t>(rule.hyperparameters.size())};
    const int64_t num_waits = NumWaits();
    EXPECT_TRUE(IsOk(RunGroupLookupApply<T>(gpu, plan, rule, numbers, AsSpan(tables))));
    EXPECT_EQ(NumWaits(), num_waits);
    std::string bytes;
    for (size_t t = 0; t < device_slots_.size(); ++t) {
      bytes += this->device_tables_[t].ToHost().bytes() + device_slots_[t].ToHost().bytes();
    }
    return bytes;
  }

  void Expect(const std::vector<TableAfter>& want) const {
    for (size_t t = 0; t < want.size(); ++t) {
      SCOPED_TRACE("table " + std::to_string(t));
      ExpectClose(this->device_tables_[t].ToHost(), want[t].values);
      ExpectClose(device_slots_[t].ToHost(), want[t].slot);
    }
  }

 private:
  template <typename Number>
  static void ExpectClose(const Array<Number>& got, const Array<double>& want) {
    for (int64_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(IsClose(got[i], want[i], 16 + std::abs(want[i]))) << "number " << i;
    }
  }

  std::vector<DeviceArray<Slot>> device_slots_;
  std::vector<TableAfter> before_;
};

// Row `row` of a table by its gradient.
using StepOfRow = void (*)(TableAfter* table, int64_t row, const std::vector<double>& grad);

void SgdStep(TableAfter* table, int64_t row, const std::vector<double>& grad) {
  const int64_t dim = static_cast<int64_t>(grad.size());
  for (int64_t d = 0; d < dim; ++d) {
    table->values[row * dim + d] -= kLearningRate * grad[static_cast<size_t>(d)];
  }
}

void AdagradStep(TableAfter* table, int64_t row, const std::vector<double>& grad) {
  const int64_t dim = static_cast<int64_t>(grad.size());
  for (int64_t d = 0; d < dim; ++d) {
    const double g = grad[static_cast<size_t>(d)];
    double& accumulator = table->slot[row * dim + d];
    accumulator += g * g;
    table->values[row * dim + d] -= kLearningRate * g / (std::sqrt(accumulator) + kEpsilon);
  }
}

void RowWiseAdagradStep(TableAfter* table, int64_t row, const std::vector<double>& grad) {
  const int64_t dim = static_cast<int64_t>(grad.size());
  double square = 0;
  for (const double g : grad) square += g * g;
  table->slot[row] += square / static_cast<double>(dim);
  for (int64_t d = 0; d < dim; ++d) {
    table->values[row * dim + d] -=
        kLearningRate / (std::sqrt(table->slot[row]) + kEpsilon) * grad[static_cast<size_t>(d)];
  }
}

template <typename T>
class CudaGroupLookupApply : public GpuTest {
 protected:
  template <typename Slot>
  void ExpectSteps(const std::string& rule, bool has_number_a_row, StepOfRow step) {
    for (int seed = 0; seed < NumCases(25); ++seed) {
      SCOPED_TRACE(seed);
      std::string bytes;
      for (const uint64_t order : OrderSeeds()) {
        ShuffleOrder(order);
        SteppedGroup<T, Slot> group(seed, has_number_a_row);
        std::vector<TableAfter> want;
        for (const TableAfter& table : group.before()) {
          want.push_back(
              {Array<double>::Of(table.values.values()), Array<double>::Of(table.slot.values())});
        }
        if (bytes.empty()) {
          const auto gradients = group.Backward(gpu, 0);
          for (size_t t = 0; t < want.size(); ++t) {
            const int64_t num_ids = gradients[t].ids.size();
            for (int64_t i = 0; i < num_ids; ++i) {
              const int64_t dim = gradients[t].rows.size() / num_ids;
              std::vector<double> grad;
              for (int64_t d = 0; d < dim; ++d) {
                grad.push_back(static_cast<double>(Load(gradients[t].rows[i * dim + d])));
              }
              step(&want[t], gradients[t].ids[i], grad);
            }
          }
        }
        const std::string got = group.Step(gpu, rule);
        if (bytes.empty()) {
          bytes = got;
          group.Expect(want);
        }
        ASSERT_EQ(got, bytes);
      }
    }
  }
};
TYPED_TEST_SUITE(CudaGroupLookupApply, ValueTypes);

TYPED_TEST(CudaGroupLookupApply, IsSgd) {
  this->template ExpectSteps<TypeParam>("sgd", false, SgdStep);
}

TYPED_TEST(CudaGroupLookupApply, IsAdagrad) {
  this->template ExpectSteps<TypeParam>("adagrad", false, AdagradStep);
}

TYPED_TEST(CudaGroupLookupApply, IsRowWiseAdagrad) {
  this->template ExpectSteps<ComputeType<TypeParam>>("row_wise_adagrad", true, RowWiseAdagradStep);
}

TYPED_TEST(CudaGroupLookupApply, SaysWhichRuleHasNoKernel) {
  const GpuGroupGradPlan<TypeParam> plan;
  const double numbers[] = {1, 1, 1, 1, 1, 1};
  EXPECT_TRUE(
      Fails(RunGroupLookupApply<TypeParam>(this->gpu, plan, RuleOf("adam"), {numbers, 6}, {}),
            StatusCode::kUnimplemented, {"adam", "run the gradient first"}));
  EXPECT_TRUE(IsInvalid(
      RunGroupLookupApply<TypeParam>(this->gpu, plan, RuleOf("adagrad"), {numbers, 1}, {}),
      {"takes 3", "got 1"}));
}

}  // namespace
}  // namespace fused_embedding
