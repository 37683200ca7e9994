#include "tests/cpp/cuda_testing.h"
#include "tf_ops/core/lookup/partition.h"

namespace fused_embedding {
namespace {

using Ints = std::vector<int64_t>;
using CudaPartition = GpuTest;

struct Result {
  std::vector<int32_t> permutation;
  std::vector<Ints> shards;
};

Status Partition(const GpuExec& gpu, const Ints& ids, const Ints& shard_rows,
                 PartitionStrategy strategy, Result* result) {
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

// The twin on the CPU, which its own tests hold against the definition.
Status PartitionOnCpu(const Ints& ids, const Ints& shard_rows, PartitionStrategy strategy,
                      Result* result) {
  const PartitionInput in{AsSpan(ids), AsSpan(shard_rows), strategy};
  result->permutation.assign(2 * ids.size(), -7);
  Ints shard_sizes(shard_rows.size());
  FE_RETURN_IF_ERROR(PlanPartition(in, AsSpan(result->permutation), AsSpan(shard_sizes)));
  result->shards.clear();
  for (const int64_t size : shard_sizes) result->shards.emplace_back(size, -7);
  std::vector<Span<int64_t>> spans;
  for (Ints& shard : result->shards) spans.push_back(AsSpan(shard));
  RunPartition(in, AsSpan(result->permutation), {spans.data(), static_cast<int64_t>(spans.size())});
  return Status();
}

constexpr PartitionStrategy kStrategies[] = {PartitionStrategy::kDiv, PartitionStrategy::kMod,
                                             PartitionStrategy::kModEv, PartitionStrategy::kHash};

TEST_F(CudaPartition, DoesTheExampleOfTheHeader) {
  Result result;
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
      Result want;
      const Status want_status = PartitionOnCpu(ids, shard_rows, strategy, &want);
      for (const uint64_t seed : kOrderSeeds) {
        ShuffleOrder(seed);
        Result got;
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
    Result got, want;
    ASSERT_TRUE(IsOk(Partition(gpu, ids, {0, 0, 0}, strategy, &got)));
    ASSERT_TRUE(IsOk(PartitionOnCpu(ids, {0, 0, 0}, strategy, &want)));
    EXPECT_EQ(got.permutation, want.permutation);
    EXPECT_EQ(got.shards, want.shards);
  }
  Result result;
  ASSERT_TRUE(IsOk(
      Partition(gpu, {0, 1, kInt64Max - 1}, {1, kInt64Max - 1}, PartitionStrategy::kDiv, &result)));
  EXPECT_EQ(result.shards, (std::vector<Ints>{{0}, {0, kInt64Max - 2}}));
}

TEST_F(CudaPartition, RefusesBadShards) {
  Result result;
  for (const PartitionStrategy strategy : kStrategies) {
    EXPECT_TRUE(IsInvalid(Partition(gpu, {}, {}, strategy, &result), {"at least one shard"}));
    EXPECT_TRUE(
        IsInvalid(Partition(gpu, {}, {2, -1}, strategy, &result), {"partition_shapes[1][0] = -1"}));
  }
}

}  // namespace
}  // namespace fused_embedding
