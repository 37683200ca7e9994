#include "tf_ops/core/lookup/stages/post_lookup_weights_grad.h"

#include "tests/cpp/naive_lookup.h"

namespace fused_embedding {
namespace {

template <typename T>
Array<ComputeType<T>> WeightsGrad(const CpuExec& exec, const Pairs<T>& pairs,
                                  const Array<T>& combined_grad) {
  PostLookupPlan<T> plan;
  EXPECT_TRUE(IsOk(PlanPostLookup(exec, pairs, &plan)));
  Array<ComputeType<T>> grad(pairs.num_pairs(), -77);
  RunPostLookupWeightsGrad(exec, pairs, plan, {combined_grad.span().data, pairs.dim}, grad.span());
  return grad;
}

template <typename T>
class WeightsGradTypes : public ::testing::Test {};
TYPED_TEST_SUITE(WeightsGradTypes, ValueTypes);

TYPED_TEST(WeightsGradTypes, IsRightByHand) {
  LookupCase in = Example();
  in.num_rows = 2;
  in.row_ids = {0, 0, 1};
  in.weights = {1, 3, 2};
  const Matrix grad = {{1, 1}, {1, -1}};
  const Array<TypeParam> flat = Flat<TypeParam>(grad, 2);
  const auto run = [&] {
    return WeightsGrad<TypeParam>(SerialExec(), PairsOf<TypeParam>(in).pairs(), flat);
  };
  // e g = 3, 7, -1
  in.combiner = Combiner::kSum;
  ExpectWeightsGrad<TypeParam>(in, grad, {3, 7, -1}, run());
  in.combiner = Combiner::kMean;  // W = 4, s = 24: 3 / 4 - 24 / 16, 7 / 4 - 24 / 16; one id: 0
  ExpectWeightsGrad<TypeParam>(in, grad, {-0.75, 0.25, 0}, run());
  in.combiner = Combiner::kSqrtn;  // Q = 10: (3 - 24 / 10, 7 - 3 * 24 / 10) / sqrt(10)
  ExpectWeightsGrad<TypeParam>(in, grad, {0.6 / std::sqrt(10), -0.2 / std::sqrt(10), 0}, run());
}

TEST(NaiveWeightsGrad, IsTheDerivativeOfNaiveCombine) {
  Random random(43);
  for (const Combiner combiner : kCombiners) {
    LookupCase in = RandomCase<double>(&random, {4, 5, 12, 3}, combiner, true);
    in.max_norm = 1.5;
    in.is_zero_row = {false, true, false, false};
    const Matrix combined_grad = RandomMatrix<double>(&random, 4, 3);
    const std::vector<double> want = NaiveWeightsGrad(in, combined_grad);
    const auto loss = [&] {
      const Matrix combined = NaiveCombine(in);
      double sum = 0;
      for (size_t r = 0; r < 4; ++r) sum += NaiveDot(combined[r], combined_grad[r]);
      return sum;
    };
    for (size_t k = 0; k < in.num_pairs(); ++k) {
      constexpr double kStep = 1e-5;
      const double at = in.weights[k];
      in.weights[k] = at + kStep;
      const double above = loss();
      in.weights[k] = at - kStep;
      const double below = loss();
      in.weights[k] = at;
      // Weights of a mean may be as small as 1 / 32: third derivatives are large.
      EXPECT_NEAR((above - below) / (2 * kStep), want[k], 1e-4) << in;
    }
  }
}

TYPED_TEST(WeightsGradTypes, AgreesWithItsDefinitionForAnyNumberOfThreads) {
  using T = TypeParam;
  ForRandomCases<T>(47, {{20, 30, 60, 0}, {3, 2, 40, 0}}, [](const LookupCase& in, Random* random) {
    const Matrix grad = RandomMatrix<T>(random, static_cast<size_t>(in.num_rows), in.dim);
    const Array<T> flat = Flat<T>(grad, in.dim);
    const PairsOf<T> pairs(in, 2);
    const auto first = WeightsGrad<T>(SerialExec(), pairs.pairs(), flat);
    ASSERT_NO_FATAL_FAILURE(ExpectWeightsGrad<T>(in, grad, NaiveWeightsGrad(in, grad), first));
    for (const int num_threads : kThreadCounts) {
      EXPECT_EQ(WeightsGrad<T>(ThreadedExec(num_threads), pairs.pairs(), flat).bytes(),
                first.bytes())
          << in << ", " << num_threads << " threads";
    }
  });
}

TYPED_TEST(WeightsGradTypes, IsZeroWhereTheResultIsFixed) {
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
    const Matrix grad = {{std::nan("")}, {5}};
    const auto got = WeightsGrad<TypeParam>(SerialExec(), PairsOf<TypeParam>(in).pairs(),
                                            Flat<TypeParam>(grad, 1));
    for (int64_t k = 0; k < 3; ++k) EXPECT_EQ(got[k], 0) << in << ", pair " << k;
  }
}

TEST(WeightsGrad, TakesNothing) {
  LookupCase in;
  in.dim = 3;
  EXPECT_EQ(WeightsGrad<float>(SerialExec(), PairsOf<float>(in).pairs(), Array<float>()).size(), 0);
  in.num_rows = 2;
  EXPECT_EQ(WeightsGrad<float>(SerialExec(), PairsOf<float>(in).pairs(), Array<float>(6)).size(),
            0);
}

}  // namespace
}  // namespace fused_embedding
