#include <utility>

#include "tests/cpp/cuda_group_keys_testing.h"
#include "tf_ops/core/lookup/group/group_keys.cu.h"

namespace fused_embedding {
namespace {

using CudaGroupKeys = GpuTest;

FoundKeys FindOnGpu(const GpuExec& gpu, const std::vector<KeyColumnCase>& cases,
                    int64_t num_tables) {
  const DeviceKeyColumns columns(cases);
  GpuGroupKeys keys;
  FoundKeys found;
  const int64_t num_waits = NumWaits();
  (void)(found.status = FindGroupKeys(gpu, columns.input(num_tables), &keys));  // as nvcc wants it
  if (!found.status.ok()) return found;
  EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
  found.positions = columns.positions();
  found.default_positions = keys.default_positions;
  const Array<int64_t> all_keys = OnHost(keys.keys);
  const Array<int32_t> all_counts = OnHost(keys.counts);
  int64_t begin = 0;
  for (const int64_t end : keys.ends) {
    found.keys.emplace_back(all_keys.view().data + begin, all_keys.view().data + end);
    found.counts.emplace_back(all_counts.view().data + begin, all_counts.view().data + end);
    begin = end;
  }
  return found;
}

TEST_F(CudaGroupKeys, EqualTheirDefinitionInAnyOrderOfThreads) {
  const TestGpu gpu;
  Random random(1);
  for (int round = 0; round < NumCases(100); ++round) {
    const int64_t num_tables = RandomInt(&random, 1, 4);
    std::vector<KeyColumnCase> columns;
    for (int64_t c = RandomInt(&random, 1, 6); c > 0; --c) {
      columns.push_back(RandomKeyColumn(&random, num_tables, round % 30 == 0 ? 3000 : 12));
    }
    const FoundKeys want = WantedKeys(columns, num_tables);
    for (const uint64_t seed : OrderSeeds()) {
      ShuffleOrder(seed);
      const FoundKeys found = FindOnGpu(gpu, columns, num_tables);
      ASSERT_TRUE(IsOk(found.status));
      ASSERT_TRUE(found == want) << "round " << round << ", order " << seed;
    }
  }
}

TEST_F(CudaGroupKeys, EveryIntegerIsAKey) {
  KeyColumnCase column{{kInt64Min, -1, kInt64Max}, {0, 0, 0}, 1};
  column.prune = false;
  const FoundKeys found = FindOnGpu(TestGpu(), {column}, 1);
  ASSERT_TRUE(IsOk(found.status));
  EXPECT_EQ(found.keys, std::vector<Ints>{column.ids});
}

TEST_F(CudaGroupKeys, NameTheColumnOfABadRow) {
  const FoundKeys found = FindOnGpu(TestGpu(), {{{1}, {0}, 1}, {{1}, {1}, 1}}, 1);
  EXPECT_TRUE(IsInvalid(found.status, {"column 1", "row_ids[0", "= 1"}));
}

TEST_F(CudaGroupKeys, ThereAreNoneOfNoColumns) {
  const FoundKeys found = FindOnGpu(TestGpu(), {}, 2);
  ASSERT_TRUE(IsOk(found.status));
  EXPECT_EQ(found.keys, (std::vector<Ints>{{}, {}}));
}

}  // namespace
}  // namespace fused_embedding
