// A step on rows of a table in a GPU's memory is the CPU's, for each rule and type.

#include <algorithm>

#include "tests/cpp/cuda_gpu_table_testing.h"
#include "tf_ops/core/optimizer/apply.cu.h"

#ifdef FE_CUDA_EMULATION  // nvcc refuses the vectors of the CPU's index
#include "tf_ops/core/optimizer/apply.h"
#include "tf_ops/core/optimizer/rules.h"

namespace fused_embedding {
namespace {

constexpr int64_t kNumKeys = 90, kNumUpdated = 41;

const char* const kRuleNames[] = {
#define FE_NAME(Rule) Rule<float>::kName,
    FE_FOR_EACH_RULE(FE_NAME)
#undef FE_NAME
};

// Of a rule, that every step changes every value: numbers below 1, an exponent, and a global step
// that is many periods of decay.
std::vector<double> NumbersOf(const RuleInfo& rule) {
  std::vector<double> numbers;
  for (const std::string& name : rule.hyperparameters) {
    const double next = 0.125 + 0.0625 * static_cast<double>(numbers.size());
    const bool is_power = name == "lr_power" || name == "learning_rate_power";
    numbers.push_back(is_power ? -0.5 : name == "global_step" ? 2.0 : next);
  }
  return numbers;
}

// A table of each kind with the same rows, and steps on both.
template <typename T>
class Pair {
 public:
  Pair(const GpuExec& gpu, const RuleInfo& rule, ValueType type, int64_t dim)
      : gpu_(gpu), rule_(rule), dim_(dim), numbers_(NumbersOf(rule)) {
    TableConfig config;
    config.layout.value_type = type;
    config.layout.dim = dim;
    config.initializer = {InitializerKind::kUniform, -1.0, 1.0, 7, {}};
    EXPECT_TRUE(IsOk(EmbeddingTable::Create(config, &cpu_table_)));
    GpuTableConfig of_gpu;
    of_gpu.layout = config.layout;
    of_gpu.initializer = config.initializer;
    of_gpu.layout.slots = rule.Slots(dim, AsSpan(numbers()));
    for (Slot& slot : of_gpu.layout.slots) slot.name = "Own/" + slot.name;
    of_gpu.max_bytes = BytesOfBuckets(of_gpu.layout, 16);
    gpu_table_ = MakeGpuTable(gpu, of_gpu);
    for (int64_t key = 0; key < kNumKeys; ++key) keys_.push_back(3 * key - 50);
    FindOrInsert(gpu, {gpu_table_.get()}, {keys_}, {});
    Array<T> values(kNumKeys * dim);
    LookupInput in;
    in.keys = AsSpan(std::as_const(keys_));
    LookupOutput out;
    out.values = reinterpret_cast<char*>(values.data());
    EXPECT_TRUE(IsOk(cpu_table_->FindOrInsert(SerialExec(), in, &out)));
  }

  // On some rows, and on one key that has none. The GPU's status; the CPU's must be ok.
  Status Step(int seed) {
    Random random(seed);
    std::shuffle(keys_.begin(), keys_.end(), random);
    std::vector<int64_t> updated(keys_.begin(), keys_.begin() + kNumUpdated);
    updated.push_back(2);
    Array<T> grads(static_cast<int64_t>(updated.size()) * dim_);
    for (int64_t i = 0; i < grads.size(); ++i) {
      grads[i] = Rounded<T>(static_cast<double>(RandomInt(&random, -64, 64)) / 32);
    }
    ApplyInput in;
    in.table = cpu_table_.get();
    in.keys = AsSpan(std::as_const(updated));
    in.grads = reinterpret_cast<const char*>(grads.data());
    in.slot_prefix = "Own";
    in.hyperparameters = AsSpan(numbers());
    EXPECT_TRUE(IsOk(Apply(SerialExec(), rule_, {&in, 1})));
    const std::vector<GpuLookup> found = Find(gpu_, {gpu_table_.get()}, {updated});
    const DeviceArray<int64_t> handles(Array<int64_t>::Of(found[0].handles));
    const DeviceArray<T> on_gpu(grads);
    const int64_t num_waits = NumWaits();
    const GpuApplyInput of_gpu = {gpu_table_.get(), handles.view(),
                                  reinterpret_cast<const char*>(on_gpu.view().data), "Own"};
    const Status status = Apply(gpu_, rule_, AsSpan(numbers()), {&of_gpu, 1});
    EXPECT_EQ(NumWaits(), num_waits);
    return status;
  }

  void ExpectEqual() const {
    Array<T> want(kNumKeys * dim_);
    LookupInput in;
    in.keys = AsSpan(keys_);
    LookupOutput out;
    out.values = reinterpret_cast<char*>(want.data());
    ASSERT_TRUE(IsOk(cpu_table_->Find(SerialExec(), in, &out)));
    const std::vector<GpuLookup> got = Find(gpu_, {gpu_table_.get()}, {keys_});
    const size_t row_bytes = static_cast<size_t>(dim_) * sizeof(T);
    for (size_t i = 0; i < keys_.size(); ++i) {
      const char* row = reinterpret_cast<const char*>(want.data()) + i * row_bytes;
      ASSERT_EQ(got[0].values[i], std::string(row, row_bytes)) << "key " << keys_[i];
    }
  }

 private:
  const std::vector<double>& numbers() const { return numbers_; }

  const GpuExec& gpu_;
  const RuleInfo& rule_;
  const int64_t dim_;
  const std::vector<double> numbers_;
  std::vector<int64_t> keys_;
  std::unique_ptr<EmbeddingTable> cpu_table_;
  std::unique_ptr<GpuTable> gpu_table_;
};

template <typename T>
class CudaApply : public GpuTest {};
TYPED_TEST_SUITE(CudaApply, ValueTypes);

TYPED_TEST(CudaApply, EachRuleIsTheCpus) {
  const TestGpu gpu;
  for (const char* name : kRuleNames) {
    RuleInfo rule;
    ASSERT_TRUE(IsOk(FindRule(name, &rule)));
    // Parts of 16 bytes, single values, and rows wider than a group of lanes.
    for (const int64_t dim : {8, 5, 160}) {
      SCOPED_TRACE(std::string(name) + ", dim " + std::to_string(dim));
      Pair<TypeParam> pair(gpu, rule, kValueTypeOf<TypeParam>, dim);
      for (int step = 0; step < 3; ++step) ASSERT_TRUE(IsOk(pair.Step(step)));
      pair.ExpectEqual();
    }
  }
}

}  // namespace
}  // namespace fused_embedding

#endif  // FE_CUDA_EMULATION
