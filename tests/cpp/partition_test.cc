#include "tf_ops/core/lookup/stages/partition.h"

#include "tests/cpp/partition_testing.h"
#include "tf_ops/core/base/hash.h"

namespace fused_embedding {
namespace {

// The (shard, local id) of an id by the strategies' definitions, shard -1: in none.
std::pair<int64_t, int64_t> NaivePlace(int64_t id, const Ints& shard_rows,
                                       PartitionStrategy strategy) {
  const int64_t num_shards = static_cast<int64_t>(shard_rows.size());
  switch (strategy) {
    case PartitionStrategy::kDiv: {
      int64_t first = 0;
      for (int64_t p = 0; p < num_shards; ++p) {
        const int64_t rows = shard_rows[static_cast<size_t>(p)];
        if (id >= first && id - first < rows) return {p, id - first};
        first += rows;
      }
      return {-1, 0};
    }
    case PartitionStrategy::kMod:
      if (id < 0 || id / num_shards >= shard_rows[static_cast<size_t>(id % num_shards)]) {
        return {-1, 0};
      }
      return {id % num_shards, id / num_shards};
    case PartitionStrategy::kModEv: {
      const int64_t bucket = id % 1000;
      return {(bucket < 0 ? bucket + 1000 : bucket) % num_shards, id};
    }
    case PartitionStrategy::kHash:
      return {static_cast<int64_t>(Mix64(static_cast<uint64_t>(id)) %
                                   static_cast<uint64_t>(num_shards)),
              id};
  }
  return {-1, 0};
}

// Complete: the permutation leads each id to its shard and back, and nothing else is in the shards.
void ExpectRight(const Ints& ids, const Ints& shard_rows, PartitionStrategy strategy,
                 const PartitionResult& result) {
  std::vector<Ints> want(shard_rows.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto [shard, local] = NaivePlace(ids[i], shard_rows, strategy);
    Ints& ids_of_shard = want[static_cast<size_t>(shard)];
    EXPECT_EQ(result.permutation[2 * i], shard) << "id " << ids[i];
    EXPECT_EQ(result.permutation[2 * i + 1], ids_of_shard.size()) << "id " << ids[i];
    ids_of_shard.push_back(local);
  }
  EXPECT_EQ(result.shards, want);
}

TEST(Partition, DoesTheExampleOfTheHeader) {
  PartitionResult result;
  ASSERT_TRUE(IsOk(Partition({5, 1, 4}, {4, 2}, PartitionStrategy::kDiv, &result)));
  EXPECT_EQ(result.shards, (std::vector<Ints>{{1}, {1, 0}}));
  EXPECT_EQ(result.permutation, (std::vector<int32_t>{1, 0, 0, 0, 1, 1}));
}

TEST(Partition, ModEvIsDeepRecsFloorModulo) {
  PartitionResult result;
  ASSERT_TRUE(IsOk(Partition({1003, -1, 1}, {0, 0}, PartitionStrategy::kModEv, &result)));
  EXPECT_EQ(result.shards, (std::vector<Ints>{{}, {1003, -1, 1}}));
}

TEST(Partition, AgreesWithItsDefinition) {
  Random random(13);
  for (const PartitionStrategy strategy : kStrategies) {
    const bool any_id =
        strategy == PartitionStrategy::kModEv || strategy == PartitionStrategy::kHash;
    for (int round = 0; round < 200; ++round) {
      Ints shard_rows, ids;
      for (int64_t p = RandomInt(&random, 1, 9); p > 0; --p) {
        shard_rows.push_back(RandomInt(&random, 0, 12));  // empty shards too
      }
      for (int64_t i = RandomInt(&random, 0, 60); i > 0; --i) {
        const int64_t id = any_id ? static_cast<int64_t>(random()) : RandomInt(&random, 0, 60);
        if (NaivePlace(id, shard_rows, strategy).first >= 0) ids.push_back(id);
      }
      PartitionResult result;
      ASSERT_TRUE(IsOk(Partition(ids, shard_rows, strategy, &result)));
      ExpectRight(ids, shard_rows, strategy, result);
    }
  }
}

TEST(Partition, TakesTheExtremes) {
  PartitionResult result;
  for (const PartitionStrategy strategy : {PartitionStrategy::kModEv, PartitionStrategy::kHash}) {
    const Ints ids = {kInt64Min, kInt64Max, -1, 0, -1000, -1001};
    ASSERT_TRUE(IsOk(Partition(ids, {0, 0, 0}, strategy, &result)));
    ExpectRight(ids, {0, 0, 0}, strategy, result);
  }
  const Ints shard_rows = {1, kInt64Max - 1};
  const Ints ids = {0, 1, kInt64Max - 1};
  ASSERT_TRUE(IsOk(Partition(ids, shard_rows, PartitionStrategy::kDiv, &result)));
  ExpectRight(ids, shard_rows, PartitionStrategy::kDiv, result);
}

TEST(Partition, RefusesAnIdThatNoShardHolds) {
  PartitionResult result;
  for (const int64_t id : {int64_t{6}, int64_t{-1}, kInt64Max, kInt64Min}) {
    for (const PartitionStrategy strategy : {PartitionStrategy::kDiv, PartitionStrategy::kMod}) {
      EXPECT_TRUE(IsInvalid(Partition({0, id}, {3, 3}, strategy, &result),
                            {std::to_string(id).c_str(), "position 1", "prune negative ids"}));
    }
  }
  // mod deals ids out in turn, so that uneven shards end at different ids.
  EXPECT_TRUE(IsInvalid(Partition({4}, {2, 5}, PartitionStrategy::kMod, &result), {"id 4"}));
  ASSERT_TRUE(IsOk(Partition({5}, {2, 5}, PartitionStrategy::kMod, &result)));
}

TEST(Partition, RefusesBadShards) {
  PartitionResult result;
  for (const PartitionStrategy strategy : kStrategies) {
    EXPECT_TRUE(IsInvalid(Partition({}, {}, strategy, &result), {"at least one shard"}));
    EXPECT_TRUE(
        IsInvalid(Partition({}, {2, -1}, strategy, &result), {"partition_shapes[1][0] = -1"}));
    EXPECT_TRUE(IsInvalid(Partition({}, {kInt64Max, 1}, strategy, &result),
                          {"partition_shapes[1][0] = 1", "int64 in total"}));
  }
}

TEST(Partition, RefusesMoreIdsThanThePermutationCounts) {
  const int64_t id = 0, rows = 1;
  int32_t permutation = 0;
  int64_t shard_size = 0;
  const PartitionInput in{{&id, int64_t{1} << 31}, {&rows, 1}, PartitionStrategy::kDiv};
  EXPECT_TRUE(IsInvalid(PlanPartition(in, {&permutation, 1}, {&shard_size, 1}), {"2147483648"}));
}

TEST(ParsePartitionStrategy, KnowsItsNames) {
  const char* const names[] = {"div", "mod", "mod_ev", "hash"};
  for (int i = 0; i < 4; ++i) {
    PartitionStrategy strategy;
    ASSERT_TRUE(IsOk(ParsePartitionStrategy(names[i], &strategy)));
    EXPECT_EQ(strategy, kStrategies[i]);
  }
  PartitionStrategy strategy;
  EXPECT_TRUE(
      IsInvalid(ParsePartitionStrategy("DIV", &strategy), {"div, mod, mod_ev or hash", "DIV"}));
}

}  // namespace
}  // namespace fused_embedding
