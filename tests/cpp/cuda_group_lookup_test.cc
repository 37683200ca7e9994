#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/group_testing.h"
#include "tf_ops/core/lookup/group_lookup.h"
#include "tf_ops/core/lookup/group_lookup_grad.h"
#include "tf_ops/core/lookup/group_lookup_weights_grad.h"

namespace fused_embedding {
namespace {

// The device memory behind GroupColumn<T>.
template <typename T>
class DeviceColumn {
 public:
  DeviceColumn(const ColumnCase& in, const DeviceArray<T>& table, int64_t row_stride)
      : ids_(Array<int64_t>::Of(in.ids)),
        ids32_(Array<int32_t>::Of(in.ids)),
        weights_(Array<ComputeType<T>>::Of(in.weights)) {
    const int64_t nnz = static_cast<int64_t>(in.ids.size());
    Array<int64_t> row_ids(nnz * row_stride, kInt64Min);
    for (int64_t k = 0; k < nnz; ++k) row_ids[k * row_stride] = in.row_ids[static_cast<size_t>(k)];
    row_ids_ = DeviceArray<int64_t>(row_ids);
    column_.ids = in.is_int32 ? IdSpan(ids32_.view()) : IdSpan(ids_.view());
    column_.row_ids = {row_ids_.data(), nnz, row_stride};
    column_.weights = weights_.view();
    column_.num_rows = in.pairs.num_rows;
    column_.table = table.data();
    column_.dim = in.pairs.dim;
    column_.table_rows = static_cast<int64_t>(in.pairs.embeddings.size());
    column_.combiner = in.pairs.combiner;
    column_.max_norm = in.pairs.max_norm;
    column_.default_id = in.default_id;
  }

  const GroupColumn<T>& column() const { return column_; }

 private:
  DeviceArray<int64_t> ids_;
  DeviceArray<int32_t> ids32_;
  DeviceArray<int64_t> row_ids_;
  DeviceArray<ComputeType<T>> weights_;
  GroupColumn<T> column_;
};

template <typename T>
class DeviceGroup : public GroupCase<T> {
 public:
  using typename GroupCase<T>::Gradient;
  using GroupCase<T>::cases_;

  explicit DeviceGroup(int seed) : GroupCase<T>(seed) {
    for (const Array<T>& table : this->flat_tables_) device_tables_.emplace_back(table);
    for (size_t c = 0; c < cases_.size(); ++c) {
      memory_.push_back(std::make_unique<DeviceColumn<T>>(
          cases_[c], device_tables_[cases_[c].table], this->row_strides_[c]));
      columns_.push_back(memory_.back()->column());
    }
  }

  Span<const GroupColumn<T>> span() const { return AsSpan(columns_); }

  // Each column's result, with `gap` values between rows that must stay as they are.
  std::vector<Array<T>> Combine(const GpuExec& gpu, int64_t gap) const {
    const int64_t num_waits = NumWaits();
    GpuGroupPlan<T> plan;
    EXPECT_TRUE(IsOk(PlanGroupLookup(gpu, span(), &plan)));
    EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
    std::vector<DeviceArray<T>> results;
    std::vector<CombinedOut<T>> out;
    for (const ColumnCase& column : cases_) {
      const int64_t stride = column.pairs.dim + gap;
      results.emplace_back(Array<T>(column.pairs.num_rows * stride, Rounded<T>(-77)));
      out.push_back({results.back().data(), stride});
    }
    EXPECT_TRUE(IsOk(RunGroupLookup<T>(gpu, span(), plan, AsSpan(out))));
    std::vector<Array<T>> on_host;
    for (const DeviceArray<T>& result : results) on_host.push_back(result.ToHost());
    return on_host;
  }

  // The rows of table t begin `shift` values behind an allocation.
  std::vector<Gradient> Backward(const GpuExec& gpu, int64_t shift) const {
    std::vector<DeviceArray<T>> device_grads;
    std::vector<CombinedGrad<T>> grads;
    for (size_t c = 0; c < cases_.size(); ++c) {
      device_grads.emplace_back(this->flat_grads_[c]);
      grads.push_back({device_grads.back().data(), cases_[c].pairs.dim});
    }
    const int64_t num_tables = static_cast<int64_t>(device_tables_.size());
    const int64_t num_waits = NumWaits();
    GpuGroupGradPlan<T> plan;
    EXPECT_TRUE(IsOk(PlanGroupLookupGrad<T>(
        gpu, {span(), AsSpan(grads), AsSpan(this->table_of_column_), num_tables}, &plan)));
    EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
    std::vector<DeviceArray<int64_t>> ids;
    std::vector<DeviceArray<T>> rows;
    std::vector<TableGrad<T>> out;
    for (const GpuTableGradPlan<T>& table : plan.tables) {
      ids.emplace_back(table.num_unique);
      rows.emplace_back(table.num_unique * table.dim + shift);
      out.push_back({ids.back().data(), rows.back().data() + shift});
    }
    EXPECT_TRUE(IsOk(RunGroupLookupGrad<T>(gpu, plan, AsSpan(out))));
    std::vector<Gradient> results;
    for (size_t t = 0; t < out.size(); ++t) {
      const std::vector<T> with_shift = rows[t].ToHost().values();
      const std::vector<T> values(with_shift.begin() + shift, with_shift.end());
      results.push_back({ids[t].ToHost(), Array<T>::Of(values)});
    }
    return results;
  }

  // Of each column with weights; nothing for others. Rows of gradients lie `gap` values apart.
  std::vector<Array<ComputeType<T>>> BackwardWeights(const GpuExec& gpu, int64_t gap) const {
    std::vector<DeviceArray<T>> device_grads;
    std::vector<CombinedGrad<T>> grads;
    std::vector<DeviceArray<ComputeType<T>>> results;
    std::vector<ComputeType<T>*> out;
    for (size_t c = 0; c < cases_.size(); ++c) {
      const int64_t dim = cases_[c].pairs.dim;
      Matrix with_gap = this->grads_[c];
      for (auto& row : with_gap) row.insert(row.end(), static_cast<size_t>(gap), std::nan(""));
      device_grads.emplace_back(Flat<T>(with_gap, dim + gap));
      grads.push_back({device_grads.back().data(), dim + gap});
      results.emplace_back(static_cast<int64_t>(cases_[c].weights.size()));
      out.push_back(results.back().data());
    }
    const int64_t num_waits = NumWaits();
    EXPECT_TRUE(IsOk(GroupLookupWeightsGrad<T>(gpu, span(), AsSpan(grads),
                                               {out.data(), static_cast<int64_t>(out.size())})));
    EXPECT_EQ(NumWaits() - num_waits, 0);
    std::vector<Array<ComputeType<T>>> on_host;
    for (const auto& result : results) on_host.push_back(result.ToHost());
    return on_host;
  }

  void ExpectWeightsGradients(const std::vector<Array<ComputeType<T>>>& got) const {
    for (size_t c = 0; c < cases_.size(); ++c) {
      if (!cases_[c].weights.empty()) this->ExpectWeightsGradient(c, got[c]);
    }
  }

 private:
  std::vector<DeviceArray<T>> device_tables_;
  std::vector<std::unique_ptr<DeviceColumn<T>>> memory_;
  std::vector<GroupColumn<T>> columns_;
};

template <typename T>
class CudaGroupLookup : public GpuTest {};
TYPED_TEST_SUITE(CudaGroupLookup, ValueTypes);

TYPED_TEST(CudaGroupLookup, EqualsItsDefinitionInAnyOrderOfThreads) {
  for (int seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const DeviceGroup<TypeParam> group(seed);
    const int64_t gap = seed % 5;
    std::vector<Array<TypeParam>> want;
    for (const uint64_t order : kOrderSeeds) {
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
  for (int seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const DeviceGroup<TypeParam> group(seed);
    std::string bytes;
    for (const uint64_t order : kOrderSeeds) {
      ShuffleOrder(order);
      const auto got = group.Backward(this->gpu, seed % 2);
      std::string got_bytes;
      for (const auto& table : got) got_bytes += table.ids.bytes() + table.rows.bytes();
      if (order == kOrderSeeds[0]) {
        group.ExpectGradient(got);
        bytes = got_bytes;
      }
      ASSERT_EQ(got_bytes, bytes);
    }
  }
}

TYPED_TEST(CudaGroupLookup, GradientOfWeightsEqualsItsDefinitionInAnyOrderOfThreads) {
  for (int seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const DeviceGroup<TypeParam> group(seed);
    std::string bytes;
    for (const uint64_t order : kOrderSeeds) {
      ShuffleOrder(order);
      const auto got = group.BackwardWeights(this->gpu, seed % 3);
      std::string got_bytes;
      for (const auto& column : got) got_bytes += column.bytes();
      if (order == kOrderSeeds[0]) {
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
