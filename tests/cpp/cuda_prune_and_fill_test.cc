#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/prune_and_fill_testing.h"

namespace fused_embedding {
namespace {

// What an input holds, as host memory and as device memory.
template <typename Weight>
struct Batch : PruneAndFillBatch {
  Array<Weight> weights;
  PruneAndFillInput<Weight> options;

  Batch(const Ints& batch_ids, const Ints& rows, int64_t num_rows)
      : PruneAndFillBatch(batch_ids, rows) {
    options.num_rows = num_rows;
    options.prune = options.fill = true;
  }

  Status OnGpu(const GpuExec& gpu, PruneAndFillResult<Weight>* result) const {
    const DeviceArray<int64_t> device_ids(ids), device_indices(indices);
    const DeviceArray<Weight> device_weights(weights);
    PruneAndFillInput<Weight> in = options;
    in.ids = device_ids.view();
    in.indices = device_indices.view();
    in.weights = device_weights.view();
    const DeviceArray<bool> is_row_empty(in.num_rows);
    const int64_t num_waits = NumWaits();
    GpuPruneAndFillPlan plan;
    FE_RETURN_IF_ERROR(PlanPruneAndFill(gpu, in, is_row_empty.span(), &plan));
    const int64_t nnz_out = plan.sizes.nnz_out();
    const DeviceArray<int64_t> out_ids(nnz_out), out_indices(2 * nnz_out);
    const DeviceArray<Weight> out_weights(weights.size() == 0 ? 0 : nnz_out);
    FE_RETURN_IF_ERROR(
        RunPruneAndFill<Weight>(gpu, in, plan, is_row_empty.view(),
                                {out_ids.span(), out_indices.span(), out_weights.span()}));
    EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
    *result = {is_row_empty.ToHost(), out_ids.ToHost(), out_indices.ToHost(), out_weights.ToHost()};
    return Status();
  }

  // The twin on the CPU, which its own tests hold against the definition.
  PruneAndFillResult<Weight> OnCpu() const {
    PruneAndFillInput<Weight> in = options;
    in.ids = ids.view();
    in.indices = indices.view();
    in.weights = weights.view();
    PruneAndFillResult<Weight> result;
    EXPECT_TRUE(IsOk(PruneAndFill(in, &result)));
    return result;
  }
};

template <typename Weight>
class CudaPruneAndFill : public GpuTest {};
TYPED_TEST_SUITE(CudaPruneAndFill, ValueTypes);
using CudaPruneAndFillFloat = GpuTest;

TEST_F(CudaPruneAndFillFloat, DoesTheExampleOfTheHeader) {
  Batch<float> batch({7, -1, 3}, {0, 0, 2}, 4);
  batch.options.default_id = 0;
  PruneAndFillResult<float> out;
  ASSERT_TRUE(IsOk(batch.OnGpu(gpu, &out)));
  EXPECT_EQ(out.ids.values(), (Ints{7, 3, 0, 0}));
  EXPECT_EQ(out.indices.values(), (Ints{0, 7, 2, 9, 1, 0, 3, 0}));
  EXPECT_EQ(out.is_row_empty.values(), (std::vector<bool>{false, true, false, true}));
}

TYPED_TEST(CudaPruneAndFill, EqualsTheCpu) {
  Random random(7);
  const double specials[] = {
      0.0, -0.0, -1.0, std::nan(""), 2.0, 0.5, std::numeric_limits<double>::infinity()};
  for (int round = 0; round < 60; ++round) {
    const int64_t num_rows = RandomInt(&random, 0, round % 10 == 0 ? 2000 : 20);
    Ints ids, rows;
    for (int64_t i = num_rows == 0 ? 0 : RandomInt(&random, 0, 2 * num_rows); i > 0; --i) {
      ids.push_back(RandomBool(&random, 0.05) ? kInt64Min : RandomInt(&random, -2, 5));
      rows.push_back(RandomInt(&random, 0, num_rows - 1));
    }
    Batch<TypeParam> batch(ids, rows, num_rows);
    if (RandomBool(&random)) {
      batch.weights = Array<TypeParam>(batch.ids.size());
      for (int64_t i = 0; i < batch.ids.size(); ++i) {
        batch.weights[i] = Rounded<TypeParam>(specials[RandomInt(&random, 0, 6)]);
      }
    }
    batch.options.default_id = RandomInt(&random, -1, 3);
    batch.options.default_weight = 0.5;
    batch.options.prune = RandomBool(&random, 0.8);
    batch.options.prune_weights = batch.weights.size() > 0 && RandomBool(&random);
    batch.options.fill = RandomBool(&random, 0.8);
    const PruneAndFillResult<TypeParam> want = batch.OnCpu();
    for (const uint64_t seed : OrderSeeds()) {
      ShuffleOrder(seed);
      PruneAndFillResult<TypeParam> got;
      ASSERT_TRUE(IsOk(batch.OnGpu(this->gpu, &got)));
      ASSERT_EQ(got.bytes(), want.bytes()) << "round " << round << ", order " << seed;
    }
  }
}

TYPED_TEST(CudaPruneAndFill, GradientGoesToTheKeptPairs) {
  const DeviceArray<int64_t> ids(Array<int64_t>{4, -1, 5, 6});
  Array<TypeParam> weights(4), kept_grad(3);  // two kept, one filled
  int64_t i = 0;
  for (const double weight : {1.0, 1.0, -2.0, 3.0}) weights[i++] = Rounded<TypeParam>(weight);
  for (int64_t k = 0; k < 3; ++k) kept_grad[k] = Rounded<TypeParam>(10.0 + static_cast<double>(k));
  const DeviceArray<TypeParam> device_weights(weights), device_grad(kept_grad), grad(4);
  PruneAndFillInput<TypeParam> in;
  in.ids = ids.view();
  in.weights = device_weights.view();
  in.prune = in.prune_weights = true;
  ASSERT_TRUE(IsOk(PruneAndFillGrad(this->gpu, in, device_grad.view(), grad.span())));
  Array<TypeParam> got = grad.ToHost();
  for (int64_t k = 0; k < 4; ++k) EXPECT_EQ(Load(got[k]), k == 0 ? 10 : k == 3 ? 11 : 0) << k;
  ASSERT_TRUE(IsOk(PruneAndFillGrad(this->gpu, in, {device_grad.data(), 1}, grad.span())));
  got = grad.ToHost();
  for (int64_t k = 0; k < 4; ++k) EXPECT_EQ(Load(got[k]), k == 0 ? 10 : 0) << k;
}

TEST_F(CudaPruneAndFillFloat, NamesTheFirstBadRow) {
  PruneAndFillResult<float> out;
  for (const int64_t row : {int64_t{3}, int64_t{-1}, kInt64Max, kInt64Min}) {
    for (const uint64_t seed : OrderSeeds()) {
      ShuffleOrder(seed);
      EXPECT_TRUE(IsInvalid(Batch<float>({1, 2, 3}, {0, row, 4}, 3).OnGpu(gpu, &out),
                            {"sp_indices[1, 0] = ", std::to_string(row).c_str(), "num_rows = 3"}));
    }
  }
  // A row is checked even where its id is dropped.
  EXPECT_TRUE(IsInvalid(Batch<float>({-1}, {0}, 0).OnGpu(gpu, &out), {"sp_indices[0, 0] = 0"}));
}

TEST_F(CudaPruneAndFillFloat, ChecksLengths) {
  PruneAndFillResult<float> out;
  Batch<float> batch({1, 2}, {0, 1}, 2);
  batch.weights = Array<float>{1, 2, 3};
  EXPECT_TRUE(IsInvalid(batch.OnGpu(gpu, &out), {"sp_weights_values", "2 ids", "has 3"}));
  EXPECT_TRUE(IsInvalid(Batch<float>({1, 2}, {0}, 2).OnGpu(gpu, &out),
                        {"sp_indices", "2 ids", "2 values"}));
}

}  // namespace
}  // namespace fused_embedding
