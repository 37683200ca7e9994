// The step on arrays in device memory: against the definition of the tests of the CPU, formulas
// written out, and the CPU.

#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/sparse_apply_testing.h"
#include "tf_ops/core/optimizer/array_rows.cu.h"

namespace fused_embedding {
namespace {

// A table in device memory: values and slots are `shift` values behind the beginning of an
// allocation, gradients `grads_shift`.
template <typename T>
class DeviceTable {
 public:
  explicit DeviceTable(const Table<T>& host, int64_t shift = 0, int64_t grads_shift = 0)
      : host_(host),
        shift_(shift),
        grads_shift_(grads_shift),
        values_(Shifted(host.values, shift)),
        grads_(Shifted(host.grads, grads_shift)),
        indices_(host.indices),
        narrow_(Array<int32_t>::Of(host.indices.values())) {
    for (const Array<T>& slot : host.slots) slots_.push_back(Shifted(slot, shift));
  }

  SparseUpdate Update(bool has_int32 = false) const {
    SparseUpdate update;
    update.type = kValueTypeOf<T>;
    update.num_rows = host_.num_rows;
    update.dim = host_.dim;
    update.values = reinterpret_cast<char*>(values_.data() + shift_);
    for (size_t k = 0; k < slots_.size(); ++k) {
      update.slots[k] = reinterpret_cast<char*>(slots_[k].data() + shift_);
    }
    update.indices = has_int32 ? IdSpan(narrow_.view()) : IdSpan(indices_.view());
    update.grads = reinterpret_cast<const char*>(grads_.data() + grads_shift_);
    return update;
  }

  Array<T> values() const { return Unshifted(values_); }
  Array<T> slot(size_t k) const { return Unshifted(slots_[k]); }
  std::string bytes() const {
    std::string all = values().bytes();
    for (size_t k = 0; k < slots_.size(); ++k) all += slot(k).bytes();
    return all;
  }

 private:
  static DeviceArray<T> Shifted(const Array<T>& array, int64_t shift) {
    std::vector<T> shifted(static_cast<size_t>(shift), Rounded<T>(7));
    for (int64_t i = 0; i < array.size(); ++i) shifted.push_back(array[i]);
    return DeviceArray<T>(Array<T>::Of(shifted));
  }
  Array<T> Unshifted(const DeviceArray<T>& array) const {
    const std::vector<T> shifted = array.ToHost().values();
    return Array<T>::Of(std::vector<T>(shifted.begin() + shift_, shifted.end()));
  }

  const Table<T>& host_;
  int64_t shift_, grads_shift_;
  DeviceArray<T> values_;
  DeviceArray<T> grads_;
  DeviceArray<int64_t> indices_;
  DeviceArray<int32_t> narrow_;
  std::vector<DeviceArray<T>> slots_;
};

SparseApplyInput InputOf(const std::string& rule, std::vector<SparseUpdate> updates,
                         const Numbers& hyperparameters) {
  return {Rule(rule),
          std::move(updates),
          {hyperparameters.data(), static_cast<int64_t>(hyperparameters.size())}};
}

Status Apply(const GpuExec& gpu, const std::string& rule, std::vector<SparseUpdate> updates,
             const Numbers& hyperparameters) {
  const SparseApplyInput in = InputOf(rule, std::move(updates), hyperparameters);
  GpuSparseApplyPlan plan;
  const int64_t num_waits = NumWaits();
  FE_RETURN_IF_ERROR(PlanSparseApply(gpu, in, &plan));
  EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
  FE_RETURN_IF_ERROR(RunSparseApply(gpu, in, plan));
  EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
  return Status();
}

const std::vector<std::vector<int64_t>> kIndices = {{},        {8},    {0, 2, 7},
                                                    {7, 2, 0}, {3, 3}, {8, 0, 8, 3, 0, 8, 4}};

template <typename T>
class CudaSparseApply : public GpuTest {
 protected:
  // Nothing for a rule with a number a row.
  template <template <typename> class RuleOf>
  void ExpectStepsAsTheRule(int64_t dim, const std::vector<int64_t>& indices) {
    const std::string name = RuleOf<double>::kName;
    if (kHyperparameters.count(name) == 0) return;
    SCOPED_TRACE(name + ", dim " + std::to_string(dim));
    Random random(static_cast<uint64_t>(dim));
    const Table<T> table(9, dim, Rule(name).num_slots, indices, &random);
    Array<double> values = AsDouble(table.values);
    std::vector<Array<double>> slots;
    for (const Array<T>& slot : table.slots) slots.push_back(AsDouble(slot));
    Numbers hyperparameters = kHyperparameters.at(name);
    for (double& h : hyperparameters) h = static_cast<ComputeType<T>>(h);
    ApplyNaively<RuleOf<double>>(hyperparameters, table, &values, &slots);
    const DeviceTable<T> device(table, dim % 2);
    ASSERT_TRUE(IsOk(Apply(gpu, name, {device.Update(dim % 3 == 0)}, hyperparameters)));
    ExpectClose(device.values(), values);
    for (size_t k = 0; k < slots.size(); ++k) ExpectClose(device.slot(k), slots[k]);
  }
};
TYPED_TEST_SUITE(CudaSparseApply, ValueTypes);

TYPED_TEST(CudaSparseApply, UpdatesEachRowOnceByTheSumOfItsGradients) {
  for (const int64_t dim : {3, 16}) {
    for (const std::vector<int64_t>& indices : kIndices) {
#define FE_EXPECT(RuleOf) this->template ExpectStepsAsTheRule<RuleOf>(dim, indices);
      FE_FOR_EACH_RULE(FE_EXPECT)
#undef FE_EXPECT
    }
  }
}

TYPED_TEST(CudaSparseApply, TakesRowsOfAnySize) {
  for (const int64_t dim : {1, 2, 4, 8, 24, 63, 64, 65, 128, 130, 256, 257, 1024}) {
    this->template ExpectStepsAsTheRule<Adam>(dim, kIndices.back());
    this->template ExpectStepsAsTheRule<CenteredRmsProp>(dim, kIndices[2]);
  }
}

// Tables of different types and sizes, with repeats and without, two of them empty. Of one row of
// `wide` there are more gradients than a tile has.
struct SparseTables {
  SparseTables()
      : wide(300, 17, 1, WithMany(5, RandomIndices(400, 300, &random)), &random),
        shuffled(40, 4, 1, {39, 5, 9, 1}, &random),
        empty(0, 8, 1, {}, &random),
        half(3000, 8, 1, RandomIndices(900, 3000, &random), &random),
        repeats(300, 16, 1, RandomIndices(500, 300, &random), &random),
        narrow(9, 0, 1, {1, 1}, &random) {}

  static std::vector<int64_t> WithMany(int64_t index, std::vector<int64_t> indices) {
    for (size_t i = 0; i < 1200; ++i) indices.insert(indices.begin() + (i * 7) % 400, index);
    return indices;
  }

  Random random{3};
  Table<float> wide;
  Table<double> shuffled;
  Table<float> empty;
  Table<Half> half;
  Table<float> repeats;
  Table<BFloat16> narrow;
};

struct DeviceTables {
  explicit DeviceTables(const SparseTables& tables)
      : wide(tables.wide),
        shuffled(tables.shuffled),
        empty(tables.empty),
        half(tables.half),
        repeats(tables.repeats),
        narrow(tables.narrow) {}

  std::vector<SparseUpdate> Updates() const {
    return {wide.Update(), shuffled.Update(),    empty.Update(),
            half.Update(), repeats.Update(true), narrow.Update()};
  }
  std::string bytes() const {
    return wide.bytes() + shuffled.bytes() + empty.bytes() + half.bytes() + repeats.bytes();
  }

  DeviceTable<float> wide;
  DeviceTable<double> shuffled;
  DeviceTable<float> empty;
  DeviceTable<Half> half;
  DeviceTable<float> repeats;
  DeviceTable<BFloat16> narrow;
};

// Adagrad as its header has it in the comment.
template <typename T>
void ExpectAdagrad(const Table<T>& before, const DeviceTable<T>& after) {
  const auto size = static_cast<size_t>(before.num_rows * before.dim);
  std::vector<double> sums(size), magnitudes(size);
  for (int64_t i = 0; i < before.grads.size(); ++i) {
    const auto at =
        static_cast<size_t>(before.indices[i / before.dim] * before.dim + i % before.dim);
    sums[at] += static_cast<double>(Load(before.grads[i]));
    magnitudes[at] += std::abs(static_cast<double>(Load(before.grads[i])));
  }
  const Array<T> values = after.values(), accumulators = after.slot(0);
  for (size_t at = 0; at < size; ++at) {
    const int64_t i = static_cast<int64_t>(at);
    const double grad = sums[at];
    const double accumulator = static_cast<double>(Load(before.slots[0][i])) + grad * grad;
    const double step = 0.5 * grad / (std::sqrt(accumulator) + 0.25);
    // A gradient of 16 bits is rounded to them once; the derivative of a square is twice it.
    const double error = ValueTraits<T>::kEpsilon * std::abs(grad) / 128 + magnitudes[at] / 8;
    ASSERT_TRUE(
        IsClose(accumulators[i], accumulator, 16 + 2 * std::abs(grad) * error + accumulator))
        << "value " << i;
    ASSERT_TRUE(IsClose(values[i], static_cast<double>(Load(before.values[i])) - step, 16 + error))
        << "value " << i;
  }
}

class CudaSparseApplyTables : public GpuTest {};

TEST_F(CudaSparseApplyTables, UpdatesAllTablesInAnyOrderOfThreads) {
  const SparseTables tables;
  std::string bytes;
  for (const uint64_t order : OrderSeeds()) {
    ShuffleOrder(order);
    const DeviceTables device(tables);
    ASSERT_TRUE(IsOk(Apply(gpu, "adagrad", device.Updates(), {0.5, 0.25, 0.1})));
    if (order == OrderSeeds()[0]) {
      ExpectAdagrad(tables.wide, device.wide);
      ExpectAdagrad(tables.shuffled, device.shuffled);
      ExpectAdagrad(tables.repeats, device.repeats);
      bytes = device.bytes();
    }
    ASSERT_EQ(device.bytes(), bytes);
  }
}

TEST_F(CudaSparseApplyTables, UpdatesAsTheCpu) {
  SparseTables tables;
  const DeviceTables device(tables);
  ASSERT_TRUE(IsOk(Apply(gpu, "adagrad", device.Updates(), {0.5, 0.25, 0.1})));
  const Numbers hyperparameters = {0.5, 0.25, 0.1};
  const SparseApplyInput in =
      InputOf("adagrad", {tables.shuffled.Update(), tables.half.Update(), tables.repeats.Update()},
              hyperparameters);
  SparseApplyPlan plan;
  ASSERT_TRUE(IsOk(PlanSparseApply(SerialExec(), in, &plan)));
  RunSparseApply(SerialExec(), in, &plan);
  ExpectClose(device.shuffled.values(), AsDouble(tables.shuffled.values));
  ExpectClose(device.half.values(), AsDouble(tables.half.values));
  ExpectClose(device.half.slot(0), AsDouble(tables.half.slots[0]));
  ExpectClose(device.repeats.values(), AsDouble(tables.repeats.values));
}

TEST_F(CudaSparseApplyTables, TakesRowsThatAreNotAligned) {
  Random random(4);
  for (const std::vector<int64_t>& indices : {kIndices[3], kIndices[5]}) {
    const Table<float> table(9, 16, 1, indices, &random);
    const DeviceTable<float> aligned(table), shifted(table, 1, 0), shifted_grads(table, 0, 1);
    for (const DeviceTable<float>* device : {&aligned, &shifted, &shifted_grads}) {
      ASSERT_TRUE(IsOk(Apply(gpu, "adagrad", {device->Update()}, {0.5, 0.25, 0.1})));
      ExpectAdagrad(table, *device);
    }
  }
}

TEST_F(CudaSparseApplyTables, SumsInInputOrder) {
  Random random(1);
  Table<float> table(2, 1, 0, {1, 0, 1, 1}, &random);
  table.values = {0, 0};
  table.grads = {1e8f, 5, -1e8f, 1};  // in another order the 1 would be lost
  const DeviceTable<float> device(table);
  ASSERT_TRUE(IsOk(Apply(gpu, "sgd", {device.Update()}, {1})));
  EXPECT_EQ(device.values().values(), (std::vector<float>{-5, -1}));
}

TEST_F(CudaSparseApplyTables, SumsIn32BitsAndRoundsOnce) {
  Random random(1);
  Table<BFloat16> table(1, 1, 0, {0, 0, 0}, &random);
  table.values = {Rounded<BFloat16>(0)};
  table.grads = {Rounded<BFloat16>(256), Rounded<BFloat16>(1), Rounded<BFloat16>(1)};
  const DeviceTable<BFloat16> device(table);
  ASSERT_TRUE(IsOk(Apply(gpu, "sgd", {device.Update()}, {1})));
  EXPECT_EQ(Load(device.values()[0]), -258.0f);  // 256 + 1 is 256 in 16 bits
}

#ifdef FE_CUDA_EMULATION
TEST_F(CudaSparseApplyTables, SortsNothingWhereIndicesAreDistinct) {
  Random random(1);
  const Table<float> distinct(50, 4, 1, {7, 3, 49, 0, 12}, &random);
  const Table<float> repeating(50, 4, 1, {7, 3, 7}, &random);
  const auto num_launches = [&](const std::vector<const Table<float>*>& tables) {
    std::vector<DeviceTable<float>> on_device;
    std::vector<SparseUpdate> updates;
    for (const Table<float>* table : tables) on_device.emplace_back(*table);
    for (const DeviceTable<float>& table : on_device) updates.push_back(table.Update());
    const Numbers hyperparameters = {0.5, 0.25, 0.1};
    const SparseApplyInput in = InputOf("adagrad", updates, hyperparameters);
    GpuSparseApplyPlan plan;
    EXPECT_TRUE(IsOk(PlanSparseApply(gpu, in, &plan)));
    const int64_t before = cuda_emulation::NumLaunches();
    EXPECT_TRUE(IsOk(RunSparseApply(gpu, in, plan)));
    EXPECT_TRUE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    return cuda_emulation::NumLaunches() - before;
  };
  EXPECT_EQ(num_launches({&distinct}), 1);
  EXPECT_EQ(num_launches({&distinct, &distinct, &distinct}), 1);
  EXPECT_GT(num_launches({&distinct, &repeating}), 1);
  EXPECT_EQ(num_launches({&distinct, &repeating, &repeating}), num_launches({&repeating}));
}
#endif

TEST_F(CudaSparseApplyTables, NamesAnIndexOutsideAndChangesNothing) {
  for (const int64_t bad : {int64_t{9}, int64_t{-1}, kInt64Min, kInt64Max}) {
    Random random(2);
    const Table<float> good(9, 4, 1, {1, 2}, &random), table(9, 4, 1, {8, 0, bad, 3, bad}, &random);
    const DeviceTable<float> device_good(good), device(table);
    EXPECT_TRUE(
        IsInvalid(Apply(gpu, "adagrad", {device_good.Update(), device.Update()}, {0.5, 0, 0.1}),
                  {"index", std::to_string(bad).c_str(), "position 2", "indices[1]", "[0, 9)"}));
    EXPECT_EQ(device_good.bytes() + device.bytes(), good.bytes() + table.bytes());
  }
}

TEST_F(CudaSparseApplyTables, NamesAnIndexOf32BitsOutside) {
  Random random(2);
  const Table<float> table(9, 4, 0, {8, -2, 3}, &random);
  const DeviceTable<float> device(table);
  EXPECT_TRUE(IsInvalid(Apply(gpu, "sgd", {device.Update(true)}, {0.5}),
                        {"index -2 at position 1 of indices[0]", "[0, 9)"}));
}

TEST_F(CudaSparseApplyTables, RejectsWhatTheCpuRejects) {
  EXPECT_TRUE(IsInvalid(Apply(gpu, "adagrad_decay", {}, {1, 1, 1, 1, 1}), {"one number a row"}));
  EXPECT_TRUE(IsInvalid(Apply(gpu, "row_wise_adagrad", {}, {1, 1, 1}), {"one number a row"}));
  EXPECT_TRUE(IsInvalid(Apply(gpu, "adagrad", {}, {1}), {"takes 3", "got 1"}));
}

TEST_F(CudaSparseApplyTables, OfNoTablesIsNothing) {
  EXPECT_TRUE(IsOk(Apply(gpu, "sgd", {}, {0.5})));
}

// --- Rows with a number each ---

template <typename T>
class CudaRowWiseAdagrad : public GpuTest {
 protected:
  using C = ComputeType<T>;

  // The rows of `table` by `table.indices`, which are distinct, and the accumulator after the step.
  Array<C> Step(const Table<T>& table, const DeviceTable<T>& device, const Array<C>& accumulator) {
    const DeviceArray<C> device_accumulator(accumulator);
    const SparseUpdate update = device.Update();
    ArrayRows<T> step;
    step.table.values = reinterpret_cast<T*>(update.values);
    step.table.slots[0] = device_accumulator.data();
    step.table.dim = table.dim;
    step.rows = static_cast<const int64_t*>(update.indices.data);
    step.grads = reinterpret_cast<const T*>(update.grads);
    step.num_rows = table.indices.size();
    const Numbers hyperparameters = {0.5, 0.25, 0};
    EXPECT_TRUE(IsOk(
        UpdateArrayRows<T>(gpu, Rule("row_wise_adagrad"), {hyperparameters.data(), 3}, {step})));
    return device_accumulator.ToHost();
  }
};
TYPED_TEST_SUITE(CudaRowWiseAdagrad, ValueTypes);

TYPED_TEST(CudaRowWiseAdagrad, EqualsItsFormulaInAnyOrderOfThreads) {
  using C = ComputeType<TypeParam>;
  for (const int64_t dim : {1, 3, 4, 8, 16, 63, 64, 65, 128, 136, 257}) {
    SCOPED_TRACE(dim);
    Random random(static_cast<uint64_t>(dim));
    const Table<TypeParam> table(9, dim, 0, {8, 0, 3, 4, 7}, &random);
    const Array<C> accumulator = RandomArray<C>(9, 0.5, &random);
    std::string bytes;
    for (const uint64_t order : OrderSeeds()) {
      ShuffleOrder(order);
      const DeviceTable<TypeParam> device(table, dim % 2);
      const Array<C> got_accumulator = this->Step(table, device, accumulator);
      const Array<TypeParam> got = device.values();
      if (bytes.empty()) bytes = got.bytes() + got_accumulator.bytes();
      ASSERT_EQ(got.bytes() + got_accumulator.bytes(), bytes);
      Array<double> want = AsDouble(table.values), want_accumulator = AsDouble(accumulator);
      for (int64_t i = 0; i < table.indices.size(); ++i) {
        const auto grad = [&](int64_t d) {
          return static_cast<double>(Load(table.grads[i * dim + d]));
        };
        double square = 0;
        for (int64_t d = 0; d < dim; ++d) square += grad(d) * grad(d);
        double& number = want_accumulator[table.indices[i]];
        number += square / static_cast<double>(dim);
        for (int64_t d = 0; d < dim; ++d) {
          want[table.indices[i] * dim + d] -= 0.5 / (std::sqrt(number) + 0.25) * grad(d);
        }
      }
      ExpectClose(got, want);
      ExpectClose(got_accumulator, want_accumulator);
    }
  }
}

TEST_F(CudaSparseApplyTables, SaysWhichRuleHasNoKernel) {
  const Numbers hyperparameters = {1, 1, 1, 1, 1};
  EXPECT_TRUE(
      Fails(UpdateArrayRows<float>(gpu, Rule("adagrad_decay"), {hyperparameters.data(), 5}, {}),
            StatusCode::kUnimplemented, {"adagrad_decay", "place the table on the CPU"}));
}

}  // namespace
}  // namespace fused_embedding
