#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/pre_lookup_testing.h"

namespace fused_embedding {
namespace {

using CudaPreLookup = GpuTest;

Status OnGpu(const GpuExec& gpu, const PreLookupBatch& batch, PreLookupResult* result) {
  const DeviceArray<int64_t> ids(Array<int64_t>::Of(batch.ids)), indices(batch.Indices());
  const PreLookupInput in = batch.Input(ids.view(), indices.view());
  const DeviceArray<int32_t> flags(batch.num_flags());
  Ints shard_sizes(batch.shard_rows.size(), -7);
  GpuPreLookupPlan plan;
  const int64_t num_waits = NumWaits();
  FE_RETURN_IF_ERROR(PlanPreLookup(gpu, in, flags.span(), AsSpan(shard_sizes), &plan));
  std::vector<DeviceArray<int64_t>> shard_ids, shard_indices;
  std::vector<Span<int64_t>> id_spans, index_spans;
  for (const int64_t size : shard_sizes) {
    shard_ids.emplace_back(size);
    shard_indices.emplace_back(2 * size);
    id_spans.push_back(shard_ids.back().span());
    index_spans.push_back(shard_indices.back().span());
  }
  const int64_t num_shards = in.shard_rows.size;
  FE_RETURN_IF_ERROR(
      RunPreLookup(gpu, in, plan, {id_spans.data(), num_shards}, {index_spans.data(), num_shards}));
  EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
  *result = {};
  for (const auto& shard : shard_ids) result->ids.push_back(shard.ToHost().values());
  for (const auto& shard : shard_indices) result->indices.push_back(shard.ToHost().values());
  result->flags = flags.ToHost().values();
  return Status();
}

TEST_F(CudaPreLookup, DoesTheExampleOfTheHeader) {
  PreLookupResult result;
  ASSERT_TRUE(IsOk(OnGpu(gpu, {{5, -1, 1}, {0, 0, 2}, {4, 2}, 3}, &result)));
  EXPECT_EQ(result.ids, (std::vector<Ints>{{1, 0}, {1}}));
  EXPECT_EQ(result.indices, (std::vector<Ints>{{2, 102, 1, 0}, {0, 100}}));
  EXPECT_EQ(result.flags, (std::vector<int32_t>{0, 1, 0, 1, 0, 1}));
}

// Results and messages.
TEST_F(CudaPreLookup, EqualsTheCpuInAnyOrderOfThreads) {
  Random random(61);
  int num_errors = 0;
  for (int round = 0; round < 300; ++round) {
    PreLookupBatch batch;
    batch.strategy = kStrategies[round % 4];
    for (int64_t p = RandomInt(&random, 1, 5); p > 0; --p) {
      batch.shard_rows.push_back(RandomInt(&random, 2, 6));
    }
    const bool is_large = round % 30 == 0;
    batch.num_rows = RandomInt(&random, 0, is_large ? 2000 : 12);
    batch.default_id = RandomInt(&random, -2, 3);
    batch.prune = RandomBool(&random, 0.8);
    batch.fill = RandomBool(&random);
    const bool has_errors = RandomBool(&random, 0.2);
    for (int64_t i = RandomInt(&random, 0, is_large ? 4000 : 20); i > 0; --i) {
      const bool has_rows = batch.num_rows > 0;
      batch.ids.push_back(RandomInt(&random, batch.prune ? -2 : 0, has_errors ? 30 : 1));
      batch.rows.push_back(
          RandomInt(&random, has_errors ? -1 : 0, has_rows ? batch.num_rows - 1 : 0));
    }
    PreLookupResult want;
    const Status want_status = PreLookup(batch, &want);
    num_errors += !want_status.ok();
    for (const uint64_t seed : OrderSeeds()) {
      ShuffleOrder(seed);
      PreLookupResult got;
      const Status status = OnGpu(gpu, batch, &got);
      ASSERT_EQ(status.message(), want_status.message());
      if (!status.ok()) continue;
      ASSERT_EQ(got.ids, want.ids) << "round " << round;
      ASSERT_EQ(got.indices, want.indices);
      ASSERT_EQ(got.flags, want.flags);
    }
  }
  EXPECT_GT(num_errors, 20);
  EXPECT_LT(num_errors, 200);
}

TEST_F(CudaPreLookup, TakesTheExtremes) {
  PreLookupBatch batch{{kInt64Min, kInt64Max, -1}, {2, 0, 2}, {0, 0, 0}, 3};
  batch.strategy = PartitionStrategy::kHash;
  for (const bool prune : {false, true}) {
    batch.prune = prune;
    PreLookupResult got, want;
    ASSERT_TRUE(IsOk(OnGpu(gpu, batch, &got)));
    ASSERT_TRUE(IsOk(PreLookup(batch, &want)));
    EXPECT_EQ(got.ids, want.ids);
    EXPECT_EQ(got.indices, want.indices);
  }
}

TEST_F(CudaPreLookup, NamesWhatIsWrong) {
  PreLookupResult result;
  EXPECT_TRUE(IsInvalid(OnGpu(gpu, {{1}, {3}, {4, 2}, 3}, &result), {"sp_indices[0, 0] = 3"}));
  EXPECT_TRUE(IsInvalid(OnGpu(gpu, {{1}, {0}, {}, 3}, &result), {"at least one shard"}));
  PreLookupBatch batch{{-1}, {0}, {4, 2}, 1};
  batch.default_id = 6;  // of a row that is filled
  EXPECT_TRUE(IsInvalid(OnGpu(gpu, batch, &result), {"id 6 at position 0"}));
  batch.fill = false;
  EXPECT_TRUE(IsOk(OnGpu(gpu, batch, &result)));
  GpuPreLookupPlan plan;
  PreLookupInput in = batch.Input({}, {});
  in.pairs.fill = true;
  in.pairs.num_rows = kInt64Max;
  int64_t sizes[2];
  EXPECT_TRUE(IsInvalid(PlanPreLookup(gpu, in, {}, {sizes, 2}, &plan), {"smaller batch"}));
}

}  // namespace
}  // namespace fused_embedding
