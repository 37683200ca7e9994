#include "tests/cpp/cuda_lookup_testing.h"
#include "tf_ops/core/lookup/stages/post_lookup_grad.h"

namespace fused_embedding {
namespace {

// Returns rows_grad [num_unique, dim], whose rows lie `gap` values apart. `num_ids` may be empty.
template <typename T>
Status PostLookupGrad(const GpuExec& gpu, const Pairs<T>& pairs, Span<const int32_t> num_ids,
                      const Array<T>& combined_grad, Array<T>* rows_grad, int64_t gap = 0) {
  const int64_t num_unique = pairs.rows.size, stride = pairs.dim + gap;
  const DeviceArray<T> device_grad(combined_grad), out(num_unique * stride);
  Array<T*> rows(num_unique);
  for (int64_t u = 0; u < num_unique; ++u) rows[u] = out.data() + u * stride;
  const DeviceArray<T*> device_rows(rows);
  const int64_t num_waits = NumWaits();
  GpuPostLookupGradPlan<T> plan;
  FE_RETURN_IF_ERROR(PlanPostLookupGrad(gpu, pairs, num_ids, &plan));
  FE_RETURN_IF_ERROR(RunPostLookupGrad(gpu, pairs, plan, device_grad.view(),
                                       Span<T* const>{device_rows.data(), num_unique}));
  EXPECT_EQ(NumWaits() - num_waits, 0);
  const Array<T> got = out.ToHost();
  *rows_grad = Array<T>(num_unique * pairs.dim);
  for (int64_t u = 0; u < num_unique; ++u) {
    std::copy_n(got.span().data + u * stride, pairs.dim, rows_grad->data() + u * pairs.dim);
  }
  return Status();
}

template <typename T>
void ExpectGrad(const GpuExec& gpu, const LookupCase& in, const Matrix& combined_grad,
                const Matrix& want) {
  Array<T> got;
  ASSERT_TRUE(IsOk(
      PostLookupGrad(gpu, DevicePairs<T>(in).pairs(), {}, Flat<T>(combined_grad, in.dim), &got)));
  ExpectRowsClose(got, want, MaxAbs(NaiveClippedGrad(in, combined_grad)));
}

template <typename T>
class CudaPostLookupGrad : public GpuTest {};
TYPED_TEST_SUITE(CudaPostLookupGrad, ValueTypes);
using CudaPostLookupGradFloat = GpuTest;

TYPED_TEST(CudaPostLookupGrad, DoesTheExampleOfTheHeader) {
  ExpectGrad<TypeParam>(this->gpu, Example(), {{6, 6}, {0, 0}, {1, 2}}, {{3, 3}, {4, 5}});
}

// Sizes: ids within a tile, ids of several tiles, ids without pairs.
TYPED_TEST(CudaPostLookupGrad, AgreesWithItsDefinitionInAnyOrderOfThreads) {
  using T = TypeParam;
  ForRandomCases<T>(
      37, {{20, 30, 60, 0}, {5, 1, 40, 0}, {30, 4, 150, 0}},
      [&](const LookupCase& in, Random* random) {
        const Matrix combined_grad =
            RandomMatrix<T>(random, static_cast<size_t>(in.num_rows), in.dim);
        const Array<T> flat_grad = Flat<T>(combined_grad, in.dim);
        const Matrix want = NaiveRowsGrad(in, combined_grad);
        const DevicePairs<T> pairs(in, 1 + RandomInt(random, 0, 1), RandomInt(random, 0, 1));
        const int64_t gap = RandomInt(random, 0, 1);
        Array<T> first;
        for (const uint64_t seed : OrderSeeds()) {
          ShuffleOrder(seed);
          Array<T> got;
          ASSERT_TRUE(IsOk(PostLookupGrad(this->gpu, pairs.pairs(), {}, flat_grad, &got, gap)));
          ASSERT_NO_FATAL_FAILURE(
              ExpectRowsClose(got, want, 4 * MaxAbs(NaiveClippedGrad(in, combined_grad))))
              << in;
          if (seed == OrderSeeds()[0]) first = Array<T>::Of(got.values());
          EXPECT_EQ(got.bytes(), first.bytes()) << in << ", order " << seed;
        }
      });
}

// Tiles are larger where there are many pairs.
TYPED_TEST(CudaPostLookupGrad, SumsOfIdsWithManyPairsAreTakenInTiles) {
  Random random(5);
  LookupCase in;
  in.combiner = Combiner::kSum;
  in.num_rows = 70000;  // more than 16 * kWantedTiles
  in.dim = 1;
  in.embeddings = {{1}, {2}, {3}};
  Matrix combined_grad;
  for (int64_t k = 0; k < in.num_rows; ++k) {
    in.unique_idx.push_back(k % 64 == 63 ? 2 : 0);
    in.row_ids.push_back(k);
    combined_grad.push_back({static_cast<double>(RandomInt(&random, -64, 64)) / 64});
  }
  const DevicePairs<TypeParam> pairs(in);
  const Array<TypeParam> flat_grad = Flat<TypeParam>(combined_grad, 1);
  std::string bytes;
  for (const uint64_t seed : OrderSeeds()) {
    ShuffleOrder(seed);
    Array<TypeParam> got;
    ASSERT_TRUE(IsOk(PostLookupGrad(this->gpu, pairs.pairs(), {}, flat_grad, &got)));
    ExpectRowsClose(got, NaiveRowsGrad(in, combined_grad), 1e4);
    if (bytes.empty()) bytes = got.bytes();
    EXPECT_EQ(got.bytes(), bytes);
  }
}

TYPED_TEST(CudaPostLookupGrad, CountsOfTheForwardPassGiveTheSameBits) {
  Random random(41);
  for (const Combiner combiner : kCombiners) {
    LookupCase in = RandomCase<TypeParam>(&random, {10, 8, 30, 16}, combiner, false);
    in.is_zero_row.assign(10, false);
    in.is_zero_row[3] = true;
    Array<int32_t> num_ids(10);
    for (const int64_t row : in.row_ids) ++num_ids[row];
    const DevicePairs<TypeParam> pairs(in);
    const DeviceArray<int32_t> counts(num_ids);
    const Array<TypeParam> grad = Flat<TypeParam>(RandomMatrix<TypeParam>(&random, 10, 16), 16);
    Array<TypeParam> with_counts, without;
    ASSERT_TRUE(IsOk(PostLookupGrad(this->gpu, pairs.pairs(), counts.view(), grad, &with_counts)));
    ASSERT_TRUE(IsOk(PostLookupGrad(this->gpu, pairs.pairs(), {}, grad, &without)));
    EXPECT_EQ(with_counts.bytes(), without.bytes());
  }
}

TYPED_TEST(CudaPostLookupGrad, LeavesOutPairsThatDoNotExist) {
  Random random(31);
  for (const Combiner combiner : kCombiners) {
    for (const double max_norm : {-1.0, 1.0}) {
      LookupCase in = RandomCase<TypeParam>(&random, {6, 5, 20, 3}, combiner, max_norm < 0);
      in.max_norm = max_norm;
      std::vector<int64_t> kept;
      const LookupCase mixed = WithMissingPairs(in, &random, &kept);
      const Matrix combined_grad = RandomMatrix<TypeParam>(&random, 6, 3);
      const Array<TypeParam> grad = Flat<TypeParam>(combined_grad, 3);
      Array<TypeParam> got;
      ASSERT_TRUE(
          IsOk(PostLookupGrad(this->gpu, DevicePairs<TypeParam>(mixed).pairs(), {}, grad, &got)));
      ExpectRowsClose(got, NaiveRowsGrad(in, combined_grad),
                      4 * MaxAbs(NaiveClippedGrad(in, combined_grad)));
    }
  }
}

TYPED_TEST(CudaPostLookupGrad, ProjectsAtTheTie) {
  LookupCase in = Example();
  in.combiner = Combiner::kSum;
  in.embeddings = {{0, 0}, {3, 4}};
  in.max_norm = 5;  // |[3, 4]|
  // g = [1, 2] + [2, 1]; g - e (e g) / 25 = [3, 3] - [3, 4] 21 / 25.
  ExpectGrad<TypeParam>(this->gpu, in, {{1, 2}, {7, 7}, {2, 1}},
                        {{1, 2}, {3 - 63.0 / 25, 3 - 84.0 / 25}});
  in.max_norm = 0;
  ExpectGrad<TypeParam>(this->gpu, in, {{1, 2}, {7, 7}, {2, 1}}, {{1, 2}, {0, 0}});
}

TYPED_TEST(CudaPostLookupGrad, AZeroRowPassesNoGradientWhateverItIs) {
  LookupCase in = Example();
  in.is_zero_row = {false, false, true};
  for (const double max_norm : {-1.0, 1.0}) {
    in.max_norm = max_norm;
    const Matrix clean = {{6, 6}, {0, 0}, {0, 0}};
    const Matrix poisoned = {
        {6, 6}, {0, 0}, {std::nan(""), std::numeric_limits<double>::infinity()}};
    ExpectGrad<TypeParam>(this->gpu, in, poisoned, NaiveRowsGrad(in, clean));
  }
}

TEST_F(CudaPostLookupGradFloat, TakesNothing) {
  LookupCase in;
  in.dim = 4;
  ExpectGrad<float>(gpu, in, {}, {});
  in.num_rows = 2;
  ExpectGrad<float>(gpu, in, {{1, 2, 3, 4}, {5, 6, 7, 8}}, {});
  in.embeddings = {{1, 1, 1, 1}};
  ExpectGrad<float>(gpu, in, {{1, 2, 3, 4}, {5, 6, 7, 8}}, {{0, 0, 0, 0}});
}

TEST_F(CudaPostLookupGradFloat, NamesWhatIsWrong) {
  const auto plan = [&](const LookupCase& in, Span<const int32_t> num_ids) {
    GpuPostLookupGradPlan<float> result;
    return PlanPostLookupGrad(gpu, DevicePairs<float>(in).pairs(), num_ids, &result);
  };
  const DeviceArray<int32_t> two_counts(2);
  EXPECT_TRUE(IsInvalid(plan(Example(), two_counts.view()), {"feature_nums", "3 rows", "has 2"}));
  LookupCase in;
  in.num_rows = kInt64Max;
  EXPECT_TRUE(Fails(plan(in, {}), StatusCode::kResourceExhausted, {}));
}

TEST_F(CudaPostLookupGradFloat, CountsThatAreNotCountsAreHarmless) {
  const DeviceArray<int32_t> counts(Array<int32_t>{std::numeric_limits<int32_t>::min(), -1, 0});
  Array<float> got;
  ASSERT_TRUE(IsOk(PostLookupGrad(gpu, DevicePairs<float>(Example()).pairs(), counts.view(),
                                  Flat<float>({{6, 6}, {0, 0}, {1, 2}}, 2), &got)));
  ExpectRowsClose(got, {{0, 0}, {0, 0}}, 0);
}

}  // namespace
}  // namespace fused_embedding
