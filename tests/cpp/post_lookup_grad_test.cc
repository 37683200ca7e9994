#include "tf_ops/core/lookup/stages/post_lookup_grad.h"

#include "tests/cpp/naive_lookup.h"
#include "tf_ops/core/lookup/stages/post_lookup.h"

namespace fused_embedding {
namespace {

// Returns rows_grad [num_unique, dim]. `num_ids` may be empty.
template <typename T>
Status PostLookupGrad(const CpuExec& exec, const Pairs<T>& pairs, Span<const int32_t> num_ids,
                      const Array<T>& combined_grad, Array<T>* rows_grad) {
  PostLookupGradPlan<T> plan;
  FE_RETURN_IF_ERROR(PlanPostLookupGrad(pairs, num_ids, &plan));
  const int64_t num_unique = pairs.rows.size;
  *rows_grad = Array<T>(num_unique * pairs.dim, Rounded<T>(-77));
  Array<T*> rows(num_unique);
  for (int64_t u = 0; u < num_unique; ++u) rows[u] = rows_grad->data() + u * pairs.dim;
  RunPostLookupGrad(exec, pairs, plan, combined_grad.view(),
                    Span<T* const>{rows.data(), num_unique});
  return Status();
}

template <typename T>
void ExpectGrad(const LookupCase& in, const Matrix& combined_grad, const Matrix& want) {
  Array<T> got;
  ASSERT_TRUE(IsOk(PostLookupGrad(SerialExec(), PairsOf<T>(in).pairs(), {},
                                  Flat<T>(combined_grad, in.dim), &got)));
  ExpectRowsClose(got, want, MaxAbs(NaiveClippedGrad(in, combined_grad)));
}

template <typename T>
class PostLookupGradTypes : public ::testing::Test {};
TYPED_TEST_SUITE(PostLookupGradTypes, ValueTypes);

TYPED_TEST(PostLookupGradTypes, DoesTheExampleOfTheHeader) {
  ExpectGrad<TypeParam>(Example(), {{6, 6}, {0, 0}, {1, 2}}, {{3, 3}, {4, 5}});
}

// The definition itself is held against the loss that it is the derivative of.
TEST(NaiveRowsGrad, IsTheDerivativeOfNaiveCombine) {
  Random random(31);
  for (const Combiner combiner : kCombiners) {
    for (const double max_norm : {-1.0, 1.5}) {
      LookupCase in = RandomCase<double>(&random, {4, 5, 12, 3}, combiner, true);
      in.max_norm = max_norm;
      in.is_zero_row = {false, true, false, false};
      const Matrix combined_grad = RandomMatrix<double>(&random, 4, 3);
      const Matrix want = NaiveRowsGrad(in, combined_grad);
      const auto loss = [&] {
        const Matrix combined = NaiveCombine(in);
        double sum = 0;
        for (size_t r = 0; r < 4; ++r) sum += NaiveDot(combined[r], combined_grad[r]);
        return sum;
      };
      for (size_t u = 0; u < in.embeddings.size(); ++u) {
        for (size_t d = 0; d < 3; ++d) {
          constexpr double kStep = 1e-5;
          const double at = in.embeddings[u][d];
          in.embeddings[u][d] = at + kStep;
          const double above = loss();
          in.embeddings[u][d] = at - kStep;
          const double below = loss();
          in.embeddings[u][d] = at;
          EXPECT_NEAR((above - below) / (2 * kStep), want[u][d], 1e-8) << in;
        }
      }
    }
  }
}

TYPED_TEST(PostLookupGradTypes, AgreesWithItsDefinitionForAnyNumberOfThreads) {
  using T = TypeParam;
  ForRandomCases<T>(
      37, {{20, 30, 60, 0}, {5, 1, 40, 0}, {1, 5, 30, 0}, {6, 2, 6, 0}},
      [](const LookupCase& in, Random* random) {
        const Matrix combined_grad =
            RandomMatrix<T>(random, static_cast<size_t>(in.num_rows), in.dim);
        const Array<T> flat_grad = Flat<T>(combined_grad, in.dim);
        const PairsOf<T> pairs(in, 1 + RandomInt(random, 0, 1));
        Array<T> first;
        ASSERT_TRUE(IsOk(PostLookupGrad(SerialExec(), pairs.pairs(), {}, flat_grad, &first)));
        ASSERT_NO_FATAL_FAILURE(ExpectRowsClose(first, NaiveRowsGrad(in, combined_grad),
                                                MaxAbs(NaiveClippedGrad(in, combined_grad))))
            << in;
        for (const int num_threads : kThreadCounts) {
          Array<T> result;
          ASSERT_TRUE(IsOk(
              PostLookupGrad(ThreadedExec(num_threads), pairs.pairs(), {}, flat_grad, &result)));
          EXPECT_EQ(result.bytes(), first.bytes()) << in << ", " << num_threads << " threads";
        }
      });
}

TYPED_TEST(PostLookupGradTypes, CountsOfTheForwardPassGiveTheSameBits) {
  Random random(41);
  for (const Combiner combiner : kCombiners) {
    LookupCase in = RandomCase<TypeParam>(&random, {10, 8, 30, 16}, combiner, false);
    in.is_zero_row.assign(10, false);
    in.is_zero_row[3] = true;
    const PairsOf<TypeParam> pairs(in);
    PostLookupPlan<TypeParam> plan;
    ASSERT_TRUE(IsOk(PlanPostLookup(SerialExec(), pairs.pairs(), &plan)));
    Array<TypeParam> combined(10 * 16);
    Array<int32_t> num_ids(10);
    RunPostLookup(SerialExec(), pairs.pairs(), plan, combined.span(), num_ids.span());
    Array<TypeParam> with_counts, without;
    ASSERT_TRUE(
        IsOk(PostLookupGrad(SerialExec(), pairs.pairs(), num_ids.view(), combined, &with_counts)));
    ASSERT_TRUE(IsOk(PostLookupGrad(SerialExec(), pairs.pairs(), {}, combined, &without)));
    EXPECT_EQ(with_counts.bytes(), without.bytes());
  }
}

TYPED_TEST(PostLookupGradTypes, ProjectsAtTheTie) {
  LookupCase in = Example();
  in.combiner = Combiner::kSum;
  in.embeddings = {{0, 0}, {3, 4}};
  in.max_norm = 5;  // |[3, 4]|
  // g = [1, 2] + [2, 1]; g - e (e g) / 25 = [3, 3] - [3, 4] 21 / 25.
  ExpectGrad<TypeParam>(in, {{1, 2}, {7, 7}, {2, 1}}, {{1, 2}, {3 - 63.0 / 25, 3 - 84.0 / 25}});
}

TYPED_TEST(PostLookupGradTypes, ClipsNoZeroEmbedding) {
  LookupCase in = Example();
  in.combiner = Combiner::kSum;
  in.embeddings = {{0, 0}, {3, 4}};
  in.max_norm = 0;
  ExpectGrad<TypeParam>(in, {{1, 2}, {7, 7}, {2, 1}}, {{1, 2}, {0, 0}});
}

TYPED_TEST(PostLookupGradTypes, AZeroRowPassesNoGradientWhateverItIs) {
  LookupCase in = Example();
  in.is_zero_row = {false, false, true};
  for (const double max_norm : {-1.0, 1.0}) {
    in.max_norm = max_norm;
    const Matrix clean = {{6, 6}, {0, 0}, {0, 0}};
    const Matrix poisoned = {
        {6, 6}, {0, 0}, {std::nan(""), std::numeric_limits<double>::infinity()}};
    ExpectGrad<TypeParam>(in, poisoned, NaiveRowsGrad(in, clean));
  }
}

TYPED_TEST(PostLookupGradTypes, AnIdWithoutPairsGetsZeros) {
  LookupCase in = Example();
  in.unique_idx = {0, 0, 0};
  ExpectGrad<TypeParam>(in, {{6, 6}, {0, 0}, {1, 2}}, {{7, 8}, {0, 0}});
}

TEST(PostLookupGrad, TakesNothing) {
  LookupCase in;
  in.dim = 4;
  ExpectGrad<float>(in, {}, {});
  in.num_rows = 2;
  ExpectGrad<float>(in, {{1, 2, 3, 4}, {5, 6, 7, 8}}, {});
  in.embeddings = {{1, 1, 1, 1}};
  ExpectGrad<float>(in, {{1, 2, 3, 4}, {5, 6, 7, 8}}, {{0, 0, 0, 0}});
}

TEST(PostLookupGrad, NamesWhatIsWrong) {
  const auto plan = [](const LookupCase& in, Span<const int32_t> num_ids) {
    PostLookupGradPlan<float> result;
    return PlanPostLookupGrad(PairsOf<float>(in).pairs(), num_ids, &result);
  };
  const Array<int32_t> two_counts = {1, 1};
  EXPECT_TRUE(IsInvalid(plan(Example(), two_counts.view()), {"feature_nums", "3 rows", "has 2"}));
  LookupCase in = Example();
  in.unique_idx[0] = 2;
  EXPECT_TRUE(IsInvalid(plan(in, {}), {"unique_idxs[0] = 2"}));
  in = Example();
  in.row_ids[1] = -1;
  EXPECT_TRUE(IsInvalid(plan(in, {}), {"indices[1, 0] = -1"}));
  in = Example();
  in.weights = {1, 2};
  EXPECT_TRUE(IsInvalid(plan(in, {}), {"one weight"}));
  in = LookupCase();
  in.num_rows = kInt64Max;
  EXPECT_TRUE(Fails(plan(in, {}), StatusCode::kResourceExhausted, {}));
}

TEST(PostLookupGrad, CountsThatAreNotCountsAreHarmless) {
  const Array<int32_t> counts = {std::numeric_limits<int32_t>::min(), -1, 0};
  Array<float> got;
  ASSERT_TRUE(IsOk(PostLookupGrad(SerialExec(), PairsOf<float>(Example()).pairs(), counts.view(),
                                  Flat<float>({{6, 6}, {0, 0}, {1, 2}}, 2), &got)));
  ExpectRowsClose(got, {{0, 0}, {0, 0}}, 0);
}

}  // namespace
}  // namespace fused_embedding
