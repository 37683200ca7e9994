#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/partition_testing.h"

namespace fused_embedding {
namespace {

using CudaPartition = GpuTest;

Status Partition(const GpuExec& gpu, const Ints& ids, const Ints& shard_rows,
                 PartitionStrategy strategy, PartitionResult* result) {
  const DeviceArray<int64_t> device_ids(Array<int64_t>::Of(ids));
  const Array<int64_t> rows = Array<int64_t>::Of(shard_rows);
  const PartitionInput in{device_ids.view(), rows.view(), strategy};
  const DeviceArray<int32_t> permutation(2 * device_ids.size());
  Array<int64_t> shard_sizes(rows.size(), -7);
  const int64_t num_waits = NumWaits();
  GpuPartitionPlan plan;
  FE_RETURN_IF_ERROR(PlanPartition(gpu, in, permutation.span(), shard_sizes.span(), &plan));
  EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
  std::vector<DeviceArray<int64_t>> shards;
  Array<Span<int64_t>> spans(rows.size());
  for (int64_t p = 0; p < rows.size(); ++p) {
    shards.emplace_back(shard_sizes[p]);
    spans[p] = shards.back().span();
  }
  FE_RETURN_IF_ERROR(RunPartition(gpu, in, plan, permutation.view(), spans.view()));
  result->permutation = permutation.ToHost().values();
  result->shards.clear();
  for (const DeviceArray<int64_t>& shard : shards)
    result->shards.push_back(shard.ToHost().values());
  return Status();
}

TEST_F(CudaPartition, DoesTheExampleOfTheHeader) {
  PartitionResult result;
  ASSERT_TRUE(IsOk(Partition(gpu, {5, 1, 4}, {4, 2}, PartitionStrategy::kDiv, &result)));
  EXPECT_EQ(result.shards, (std::vector<Ints>{{1}, {1, 0}}));
  EXPECT_EQ(result.permutation, (std::vector<int32_t>{1, 0, 0, 0, 1, 1}));
}

// Results and messages.
TEST_F(CudaPartition, EqualsTheCpuInAnyOrderOfThreads) {
  Random random(13);
  for (const PartitionStrategy strategy : kStrategies) {
    for (int round = 0; round < 60; ++round) {
      Ints shard_rows, ids;
      for (int64_t p = RandomInt(&random, 1, 9); p > 0; --p) {
        shard_rows.push_back(RandomInt(&random, 0, 12));  // empty shards too
      }
      const bool any_id = RandomBool(&random, 0.2);
      for (int64_t i = RandomInt(&random, 0, round % 10 == 0 ? 3000 : 60); i > 0; --i) {
        ids.push_back(any_id ? static_cast<int64_t>(random()) : RandomInt(&random, 0, 9));
      }
      PartitionResult want;
      const Status want_status = Partition(ids, shard_rows, strategy, &want);
      for (const uint64_t seed : OrderSeeds()) {
        ShuffleOrder(seed);
        PartitionResult got;
        const Status status = Partition(gpu, ids, shard_rows, strategy, &got);
        ASSERT_EQ(status.message(), want_status.message());
        if (!status.ok()) continue;
        ASSERT_EQ(got.permutation, want.permutation);
        ASSERT_EQ(got.shards, want.shards);
      }
    }
  }
}

TEST_F(CudaPartition, TakesTheExtremes) {
  const Ints ids = {kInt64Min, kInt64Max, -1, 0, -1000, -1001};
  for (const PartitionStrategy strategy : {PartitionStrategy::kModEv, PartitionStrategy::kHash}) {
    PartitionResult got, want;
    ASSERT_TRUE(IsOk(Partition(gpu, ids, {0, 0, 0}, strategy, &got)));
    ASSERT_TRUE(IsOk(Partition(ids, {0, 0, 0}, strategy, &want)));
    EXPECT_EQ(got.permutation, want.permutation);
    EXPECT_EQ(got.shards, want.shards);
  }
  PartitionResult result;
  ASSERT_TRUE(IsOk(
      Partition(gpu, {0, 1, kInt64Max - 1}, {1, kInt64Max - 1}, PartitionStrategy::kDiv, &result)));
  EXPECT_EQ(result.shards, (std::vector<Ints>{{0}, {0, kInt64Max - 2}}));
}

TEST_F(CudaPartition, RefusesBadShards) {
  PartitionResult result;
  for (const PartitionStrategy strategy : kStrategies) {
    EXPECT_TRUE(IsInvalid(Partition(gpu, {}, {}, strategy, &result), {"at least one shard"}));
    EXPECT_TRUE(
        IsInvalid(Partition(gpu, {}, {2, -1}, strategy, &result), {"partition_shapes[1][0] = -1"}));
  }
}

}  // namespace
}  // namespace fused_embedding
