#include "tests/cpp/cuda_lookup_testing.h"
#include "tf_ops/core/lookup/stages/post_lookup_weights_grad.h"

namespace fused_embedding {
namespace {

// Rows of the gradient lie `gap` values apart.
template <typename T>
Array<ComputeType<T>> WeightsGrad(const GpuExec& gpu, const Pairs<T>& pairs,
                                  const Matrix& combined_grad, int64_t gap = 0) {
  Matrix with_gap = combined_grad;
  for (auto& row : with_gap) row.insert(row.end(), static_cast<size_t>(gap), std::nan(""));
  const DeviceArray<T> grad(Flat<T>(with_gap, pairs.dim + gap));
  const DeviceArray<ComputeType<T>> weights_grad(pairs.num_pairs());
  const int64_t num_waits = NumWaits();
  GpuPostLookupPlan<T> plan;
  EXPECT_TRUE(IsOk(PlanPostLookup(gpu, pairs, &plan)));
  EXPECT_TRUE(IsOk(RunPostLookupWeightsGrad(gpu, pairs, plan, {grad.data(), pairs.dim + gap},
                                            weights_grad.span())));
  EXPECT_EQ(NumWaits() - num_waits, 0);
  return weights_grad.ToHost();
}

template <typename T>
class CudaPostLookupWeightsGrad : public GpuTest {};
TYPED_TEST_SUITE(CudaPostLookupWeightsGrad, ValueTypes);
using CudaPostLookupWeightsGradFloat = GpuTest;

TYPED_TEST(CudaPostLookupWeightsGrad, IsRightByHand) {
  LookupCase in = Example();
  in.num_rows = 2;
  in.row_ids = {0, 0, 1};
  in.weights = {1, 3, 2};
  const Matrix grad = {{1, 1}, {1, -1}};
  const auto expect = [&](const std::vector<double>& want) {
    ExpectWeightsGrad<TypeParam>(
        in, grad, want,
        WeightsGrad<TypeParam>(this->gpu, DevicePairs<TypeParam>(in).pairs(), grad));
  };
  // e g = 3, 7, -1
  in.combiner = Combiner::kSum;
  expect({3, 7, -1});
  in.combiner = Combiner::kMean;  // W = 4, s = 24: 3 / 4 - 24 / 16, 7 / 4 - 24 / 16; one id: 0
  expect({-0.75, 0.25, 0});
  in.combiner = Combiner::kSqrtn;  // Q = 10: (3 - 24 / 10, 7 - 3 * 24 / 10) / sqrt(10)
  expect({0.6 / std::sqrt(10), -0.2 / std::sqrt(10), 0});
}

TYPED_TEST(CudaPostLookupWeightsGrad, AgreesWithItsDefinitionInAnyOrderOfThreads) {
  using T = TypeParam;
  ForRandomCases<T>(
      47, {{20, 30, 60, 0}, {3, 2, 40, 0}, {300, 5, 700, 0}},
      [&](const LookupCase& in, Random* random) {
        const Matrix grad = RandomMatrix<T>(random, static_cast<size_t>(in.num_rows), in.dim);
        const DevicePairs<T> pairs(in, 1 + RandomInt(random, 0, 1), RandomInt(random, 0, 1));
        const int64_t gap = RandomInt(random, 0, 1);
        std::string bytes;
        for (const uint64_t seed : OrderSeeds()) {
          ShuffleOrder(seed);
          const auto got = WeightsGrad<T>(this->gpu, pairs.pairs(), grad, gap);
          ASSERT_NO_FATAL_FAILURE(ExpectWeightsGrad<T>(in, grad, NaiveWeightsGrad(in, grad), got));
          if (bytes.empty()) bytes = got.bytes();
          EXPECT_EQ(got.bytes(), bytes) << in << ", order " << seed;
        }
      });
}

TYPED_TEST(CudaPostLookupWeightsGrad, PairsThatDoNotExistHaveNone) {
  Random random(53);
  for (const Combiner combiner : kCombiners) {
    const LookupCase in = RandomCase<TypeParam>(&random, {6, 5, 20, 3}, combiner, true);
    std::vector<int64_t> kept;
    const LookupCase mixed = WithMissingPairs(in, &random, &kept);
    const Matrix grad = RandomMatrix<TypeParam>(&random, 6, 3);
    const std::vector<double> of_kept = NaiveWeightsGrad(in, grad);
    std::vector<double> want(mixed.num_pairs(), 0);
    for (size_t k = 0; k < kept.size(); ++k) want[static_cast<size_t>(kept[k])] = of_kept[k];
    ExpectWeightsGrad<TypeParam>(
        in, grad, want,
        WeightsGrad<TypeParam>(this->gpu, DevicePairs<TypeParam>(mixed).pairs(), grad));
  }
}

TYPED_TEST(CudaPostLookupWeightsGrad, IsZeroWhereTheResultIsFixed) {
  for (const Combiner combiner : kCombiners) {
    LookupCase in;
    in.combiner = combiner;
    in.num_rows = 2;
    in.dim = 1;
    in.embeddings = {{2}};
    in.unique_idx = {0, 0, 0};
    in.row_ids = {0, 1, 1};
    in.weights = {1, 0, 0};  // denominator 0 in row 1, except for the sum
    in.is_zero_row = {true, combiner == Combiner::kSum};
    const auto got = WeightsGrad<TypeParam>(this->gpu, DevicePairs<TypeParam>(in).pairs(),
                                            {{std::nan("")}, {5}});
    for (int64_t k = 0; k < 3; ++k) EXPECT_EQ(got[k], 0) << in << ", pair " << k;
  }
}

TEST_F(CudaPostLookupWeightsGradFloat, TakesNothing) {
  LookupCase in;
  in.dim = 3;
  EXPECT_EQ(WeightsGrad<float>(gpu, DevicePairs<float>(in).pairs(), {}).size(), 0);
  in.num_rows = 2;
  EXPECT_EQ(WeightsGrad<float>(gpu, DevicePairs<float>(in).pairs(), ZeroMatrix(2, 3)).size(), 0);
}

}  // namespace
}  // namespace fused_embedding
