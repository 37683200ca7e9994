#include "tests/cpp/cuda_lookup_testing.h"
#include "tf_ops/core/lookup/stages/post_lookup.h"

namespace fused_embedding {
namespace {

template <typename T>
struct Result {
  Array<T> combined;
  Array<int32_t> num_ids;
  std::string bytes() const { return combined.bytes() + num_ids.bytes(); }
};

template <typename T>
Status PostLookup(const GpuExec& gpu, const Pairs<T>& pairs, Result<T>* result) {
  const int64_t num_waits = NumWaits();
  GpuPostLookupPlan<T> plan;
  FE_RETURN_IF_ERROR(PlanPostLookup(gpu, pairs, &plan));
  const DeviceArray<T> combined(pairs.num_rows * pairs.dim);
  const DeviceArray<int32_t> num_ids(pairs.num_rows);
  FE_RETURN_IF_ERROR(RunPostLookup(gpu, pairs, plan, combined.span(), num_ids.span()));
  EXPECT_EQ(NumWaits() - num_waits, 0);
  result->combined = combined.ToHost();
  result->num_ids = num_ids.ToHost();
  return Status();
}

template <typename T>
void ExpectCombined(const GpuExec& gpu, const LookupCase& in, const Matrix& want) {
  Result<T> result;
  ASSERT_TRUE(IsOk(PostLookup(gpu, DevicePairs<T>(in).pairs(), &result)));
  ExpectRowsClose(result.combined, want, MaxAbs(want));
}

template <typename T>
class CudaPostLookup : public GpuTest {};
TYPED_TEST_SUITE(CudaPostLookup, ValueTypes);
using CudaPostLookupFloat = GpuTest;

TYPED_TEST(CudaPostLookup, DoesTheExampleOfTheHeader) {
  Result<TypeParam> result;
  const DevicePairs<TypeParam> pairs(Example(Combiner::kMean));
  ASSERT_TRUE(IsOk(PostLookup(this->gpu, pairs.pairs(), &result)));
  ExpectRowsClose(result.combined, {{2, 3}, {0, 0}, {3, 4}}, 4);
  EXPECT_EQ(result.num_ids.values(), (std::vector<int32_t>{2, 0, 1}));
}

TYPED_TEST(CudaPostLookup, AgreesWithItsDefinitionInAnyOrderOfThreads) {
  using T = TypeParam;
  ForRandomCases<T>(
      23, {{20, 10, 60, 0}, {40, 1, 5, 0}}, [&](const LookupCase& in, Random* random) {
        const Matrix want = NaiveCombine(in);
        const DevicePairs<T> pairs(in, 1 + RandomInt(random, 0, 1), RandomInt(random, 0, 1));
        std::string bytes;
        for (const uint64_t seed : OrderSeeds()) {
          ShuffleOrder(seed);
          Result<T> result;
          ASSERT_TRUE(IsOk(PostLookup(this->gpu, pairs.pairs(), &result)));
          ASSERT_NO_FATAL_FAILURE(
              ExpectRowsClose(result.combined, want, MaxAbs(want) + MaxAbs(in.embeddings)))
              << in;
          if (bytes.empty()) bytes = result.bytes();
          EXPECT_EQ(result.bytes(), bytes) << in << ", order " << seed;
        }
      });
}

TYPED_TEST(CudaPostLookup, LeavesOutPairsThatDoNotExist) {
  Random random(29);
  for (const Combiner combiner : kCombiners) {
    for (const double max_norm : {-1.0, 1.0}) {
      LookupCase in = RandomCase<TypeParam>(&random, {6, 5, 20, 3}, combiner, max_norm < 0);
      in.max_norm = max_norm;
      std::vector<int64_t> kept;
      const LookupCase mixed = WithMissingPairs(in, &random, &kept);
      Result<TypeParam> want, got;
      ASSERT_TRUE(IsOk(PostLookup(this->gpu, DevicePairs<TypeParam>(in).pairs(), &want)));
      ASSERT_TRUE(IsOk(PostLookup(this->gpu, DevicePairs<TypeParam>(mixed).pairs(), &got)));
      EXPECT_EQ(got.bytes(), want.bytes()) << mixed;
    }
  }
}

TYPED_TEST(CudaPostLookup, CountsThePairsOfRowsThatAreNotZero) {
  LookupCase in = Example(Combiner::kSum);
  in.is_zero_row = {false, false, true};
  Result<TypeParam> result;
  ASSERT_TRUE(IsOk(PostLookup(this->gpu, DevicePairs<TypeParam>(in).pairs(), &result)));
  EXPECT_EQ(result.num_ids.values(), (std::vector<int32_t>{2, 0, 0}));
}

TYPED_TEST(CudaPostLookup, NanAndInfinityStayInTheirRows) {
  LookupCase in = Example(Combiner::kSum);
  in.embeddings = {{std::nan(""), 2}, {std::numeric_limits<double>::infinity(), 4}};
  in.row_ids = {0, 2, 2};
  ExpectCombined<TypeParam>(this->gpu, in, NaiveCombine(in));
  in.is_zero_row = {true, true, true};  // whatever the row holds
  ExpectCombined<TypeParam>(this->gpu, in, ZeroMatrix(3, 2));
}

TYPED_TEST(CudaPostLookup, AZeroDenominatorGivesZero) {
  for (const Combiner combiner : {Combiner::kMean, Combiner::kSqrtn}) {
    LookupCase in = Example(combiner);
    in.weights = {0, 0, 0};
    in.embeddings[1][1] = std::nan("");
    ExpectCombined<TypeParam>(this->gpu, in, ZeroMatrix(3, 2));
  }
}

TYPED_TEST(CudaPostLookup, ClipsAtItsEdges) {
  LookupCase in = Example(Combiner::kSum);
  in.embeddings = {{0, 0}, {3, 4}};
  in.max_norm = 5;  // just as long: not clipped
  ExpectCombined<TypeParam>(this->gpu, in, {{3, 4}, {0, 0}, {3, 4}});
  in.max_norm = 0;
  ExpectCombined<TypeParam>(this->gpu, in, ZeroMatrix(3, 2));
}

TEST_F(CudaPostLookupFloat, SixteenBitsAreAddedInFloat) {
  LookupCase in;
  in.combiner = Combiner::kMean;
  in.num_rows = 1;
  in.dim = 1;
  in.embeddings = {{60000}};
  in.unique_idx.assign(1000, 0);
  in.row_ids.assign(1000, 0);
  ExpectCombined<Half>(gpu, in, {{60000}});  // the sum is far past what Half holds
  in.combiner = Combiner::kSum;
  ExpectCombined<Half>(gpu, in, {{std::numeric_limits<double>::infinity()}});
  in.embeddings = {{1}};
  ExpectCombined<BFloat16>(gpu, in, {{1000}});  // adding in bfloat16 would end at 256
}

TEST_F(CudaPostLookupFloat, TakesNothing) {
  for (const CaseSize& size : {CaseSize{0, 0, 0, 4}, CaseSize{3, 0, 0, 4}, CaseSize{3, 2, 5, 0}}) {
    LookupCase in;
    Random random(1);
    if (size.num_pairs > 0) in = RandomCase<float>(&random, size, Combiner::kMean, false);
    in.num_rows = size.num_rows;
    in.dim = size.dim;
    in.max_norm = 1;
    ExpectCombined<float>(gpu, in, ZeroMatrix(static_cast<size_t>(size.num_rows), size.dim));
  }
}

TEST_F(CudaPostLookupFloat, NamesWhatIsWrong) {
  Result<float> result;
  const auto run = [&](const LookupCase& in) {
    return PostLookup(gpu, DevicePairs<float>(in).pairs(), &result);
  };
  LookupCase in = Example(Combiner::kSum);
  in.weights = {1};
  EXPECT_TRUE(IsInvalid(run(in), {"one weight", "the 3 ids", "got 1"}));
  in = Example(Combiner::kSum);
  in.unique_idx.pop_back();
  EXPECT_TRUE(IsInvalid(run(in), {"unique_idxs", "the 3 rows", "has 2"}));
  in = Example(Combiner::kSum);
  in.is_zero_row = {true};
  EXPECT_TRUE(IsInvalid(run(in), {"is_row_empty", "the 3 rows", "has 1"}));
}

TEST_F(CudaPostLookupFloat, RefusesMoreRowsThanAnyMachineHas) {
  LookupCase in;
  GpuPostLookupPlan<float> plan;
  for (const int64_t num_rows : {kInt64Max, kInt64Max - 1, int64_t{1} << 60}) {
    in.num_rows = num_rows;
    const Status status = PlanPostLookup(gpu, DevicePairs<float>(in).pairs(), &plan);
    EXPECT_TRUE(Fails(status, StatusCode::kResourceExhausted, {"smaller batch"}));
  }
}

#ifdef FE_CUDA_EMULATION
TEST_F(CudaPostLookupFloat, ErrorsOfCudaAreStatuses) {
  const DevicePairs<float> pairs(Example(Combiner::kMean));
  GpuPostLookupPlan<float> plan;
  FailNextCall(cudaErrorMemoryAllocation);
  EXPECT_TRUE(Fails(PlanPostLookup(gpu, pairs.pairs(), &plan), StatusCode::kResourceExhausted,
                    {"device memory", "smaller batch"}));
  ASSERT_TRUE(IsOk(PlanPostLookup(gpu, pairs.pairs(), &plan)));
  const DeviceArray<float> combined(6);
  const DeviceArray<int32_t> num_ids(3);
  FailNextCall(cudaErrorNoKernelImageForDevice);
  EXPECT_TRUE(Fails(RunPostLookup(gpu, pairs.pairs(), plan, combined.span(), num_ids.span()),
                    StatusCode::kFailedPrecondition, {"FE_CUDA_ARCHITECTURES"}));
  FailNextCall(cudaErrorInvalidValue);
  EXPECT_TRUE(Fails(RunPostLookup(gpu, pairs.pairs(), plan, combined.span(), num_ids.span()),
                    StatusCode::kInternal, {"launch a kernel", "CUDA_LAUNCH_BLOCKING"}));
}
#endif

}  // namespace
}  // namespace fused_embedding
