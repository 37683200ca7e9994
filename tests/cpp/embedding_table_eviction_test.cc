// Properties of bounded tables, which choose for themselves which rows they give up.

#include "tests/cpp/table_testing.h"

namespace fused_embedding {
namespace {

// What a full table may give up, as (first, second) order of EvictionPolicy.
std::pair<uint32_t, uint32_t> Score(EvictionPolicy policy, const RowHeader& header) {
  if (policy == EvictionPolicy::kLfu) return {header.frequency, header.version};
  return {header.version, header.frequency};
}

// What a batch of distinct keys must have done to a bounded table of one shard.
void CheckEvictions(const TableConfig& config, const TableContents& before,
                    const TableContents& after, const std::set<int64_t>& batch,
                    int64_t num_refused) {
  const int64_t num_keys = static_cast<int64_t>(batch.size());
  ASSERT_LE(after.rows.size(), config.max_capacity);
  int64_t num_present = 0;
  std::set<int64_t> all = batch;
  for (const int64_t key : batch) num_present += after.rows.count(key);
  for (const auto& [key, row] : before.rows) all.insert(key);
  // Nothing is given up, and nothing refused, without need.
  ASSERT_EQ(after.rows.size(), std::min<int64_t>(config.max_capacity, all.size()));
  if (config.eviction == EvictionPolicy::kNone) {
    for (const auto& [key, row] : before.rows) ASSERT_EQ(after.rows.count(key), 1u);
  } else {
    ASSERT_EQ(num_refused, std::max<int64_t>(0, num_keys - config.max_capacity));
  }
  ASSERT_EQ(num_present, num_keys - num_refused);
  std::pair<uint32_t, uint32_t> highest_given_up = {0, 0}, lowest_kept = {~0u, ~0u};
  for (const auto& [key, row] : before.rows) {
    if (batch.count(key) > 0) continue;
    const auto score = Score(config.eviction, HeaderOf(row));
    if (after.rows.count(key) == 0) {
      highest_given_up = std::max(highest_given_up, score);
    } else {
      lowest_kept = std::min(lowest_kept, score);
    }
  }
  ASSERT_LE(highest_given_up, lowest_kept);
}

void FillBoundedTable(EvictionPolicy eviction, int seed) {
  Random random(seed);
  TableConfig config = TestConfig();
  config.max_capacity = RandomInt(&random, 1, 300);
  config.eviction = eviction;
  config.check_mode = CheckMode::kIgnore;
  const auto table = MakeTable(config);
  ASSERT_EQ(table->num_shards(), 1);
  int64_t num_evicted = 0;
  for (int step = 0; step < 60; ++step) {
    std::set<int64_t> batch;
    const int64_t num_keys = RandomInt(&random, 0, RandomBool(&random, 0.1) ? 400 : 60);
    while (static_cast<int64_t>(batch.size()) < num_keys) {
      batch.insert(RandomInt(&random, 0, 2 * config.max_capacity + num_keys));
    }
    Ints keys(batch.begin(), batch.end());
    std::shuffle(keys.begin(), keys.end(), random);
    const TableContents before = ContentsOf(*table);
    // Many batches of a step: rows of this batch are not known by their version.
    const Lookup got = LookUp(table.get(), keys, {{}, step / 8});
    ASSERT_TRUE(IsOk(got.status));
    const TableContents after = ContentsOf(*table);
    CheckEvictions(config, before, after, batch, got.num_refused);
    for (const auto& [key, row] : before.rows) num_evicted += after.rows.count(key) == 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool has_row = after.rows.count(keys[i]) > 0;
      ASSERT_EQ(got.handles[i] >= 0, has_row);
      ASSERT_EQ(got.values[2 * i], has_row ? 0.5f : 0.0f);
    }
    if (step % 7 == 0) EraseKeys(table.get(), {keys.begin(), keys.begin() + num_keys / 2});
  }
  ASSERT_EQ(table->Statistics().evictions, num_evicted);
}

TEST(EmbeddingTableEvictionTest, ABoundedTableGivesUpTheLeastUsedRows) {
  for (const EvictionPolicy eviction :
       {EvictionPolicy::kNone, EvictionPolicy::kLru, EvictionPolicy::kLfu}) {
    for (int seed = 0; seed < NumCases(15); ++seed) {
      FillBoundedTable(eviction, seed);
      if (HasFatalFailure()) FAIL() << "policy " << static_cast<int>(eviction) << " seed " << seed;
    }
  }
}

TEST(EmbeddingTableEvictionTest, ALargeBoundedTableKeepsWhatIsInUse) {
  TableConfig config = TestConfig();
  config.max_capacity = 100000;
  config.eviction = EvictionPolicy::kLru;
  const auto table = MakeTable(config);
  ASSERT_EQ(table->num_shards(), 16);
  Random random(3);
  Ints hot;
  for (int64_t key = 0; key < 10000; ++key) hot.push_back(key);
  for (int64_t step = 0; step < 200; ++step) {
    Ints keys = hot;
    for (int64_t i = 0; i < 3000; ++i) keys.push_back(10000 + 3000 * step + i);
    ASSERT_TRUE(IsOk(LookUp(table.get(), keys, {{}, step}).status));
    ASSERT_LE(table->size(), config.max_capacity);
  }
  // Shards hold a few rows more or less than their share of the hot ones.
  EXPECT_EQ(table->size(), config.max_capacity);
  const Lookup found = LookUp(table.get(), hot, {{}, 0, false});
  for (const int64_t handle : found.handles) ASSERT_GE(handle, 0);
  // Of the others those used last are left: an LRU of 90000 rows holds 30 steps.
  Ints last;
  for (int64_t i = 0; i < 3000 * 25; ++i) last.push_back(10000 + 3000 * 200 - 1 - i);
  for (const int64_t handle : LookUp(table.get(), last, {{}, 0, false}).handles) {
    ASSERT_GE(handle, 0);
  }
}

// Which rows to give up is found out for many at once.
TEST(EmbeddingTableEvictionTest, ARowThatIsUsedMeanwhileIsNotGivenUp) {
  TableConfig config = TestConfig();
  config.num_shards = 1;
  config.max_capacity = 2 * 4096;
  config.eviction = EvictionPolicy::kLru;
  const auto table = MakeTable(config);
  const auto range = [](int64_t begin, int64_t end) {
    Ints keys;
    for (int64_t key = begin; key < end; ++key) keys.push_back(key);
    return keys;
  };
  for (int64_t step = 0; step < 8; ++step) {
    ASSERT_TRUE(
        IsOk(LookUp(table.get(), range(1024 * step, 1024 * (step + 1)), {{}, step}).status));
  }
  // The first eight are given up, and the rest of the oldest are next.
  ASSERT_TRUE(IsOk(LookUp(table.get(), range(10000, 10008), {{}, 8}).status));
  ASSERT_TRUE(IsOk(LookUp(table.get(), range(8, 1000), {{}, 9}).status));
  ASSERT_TRUE(IsOk(LookUp(table.get(), range(20000, 20500), {{}, 10}).status));
  const TableContents contents = ContentsOf(*table);
  EXPECT_EQ(contents.rows.size(), 8192u);
  for (const int64_t key : range(8, 1000)) ASSERT_EQ(contents.rows.count(key), 1u) << key;
  for (const int64_t key : range(1000, 1024)) ASSERT_EQ(contents.rows.count(key), 0u) << key;
  for (const int64_t key : range(2048, 8192)) ASSERT_EQ(contents.rows.count(key), 1u) << key;
}

}  // namespace
}  // namespace fused_embedding
