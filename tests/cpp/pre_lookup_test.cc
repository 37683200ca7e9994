#include "tf_ops/core/lookup/stages/pre_lookup.h"

#include "tests/cpp/pre_lookup_testing.h"

namespace fused_embedding {
namespace {

TEST(PreLookup, DoesTheExampleOfTheHeader) {
  PreLookupBatch batch{{5, -1, 1}, {0, 0, 2}, {4, 2}, 3};
  PreLookupResult result;
  ASSERT_TRUE(IsOk(PreLookup(batch, &result)));
  EXPECT_EQ(result.ids, (std::vector<Ints>{{1, 0}, {1}}));
  EXPECT_EQ(result.indices, (std::vector<Ints>{{2, 102, 1, 0}, {0, 100}}));
  EXPECT_EQ(result.flags, (std::vector<int32_t>{0, 1, 0, 1, 0, 1}));
}

TEST(PreLookup, AgreesWithItsDefinition) {
  Random random(19);
  for (int round = 0; round < 300; ++round) {
    PreLookupBatch batch;
    batch.num_rows = RandomInt(&random, 1, 10);
    batch.shard_rows = {RandomInt(&random, 1, 6), RandomInt(&random, 0, 6),
                        RandomInt(&random, 0, 6)};
    const int64_t first_of[] = {0, batch.shard_rows[0], batch.shard_rows[0] + batch.shard_rows[1]};
    const int64_t num_ids = first_of[2] + batch.shard_rows[2];
    batch.default_id = RandomInt(&random, -2, num_ids - 1);
    batch.fill = RandomBool(&random);
    for (int64_t i = RandomInt(&random, 0, 20); i > 0; --i) {
      batch.ids.push_back(RandomInt(&random, -2, num_ids - 1));
      batch.rows.push_back(RandomInt(&random, 0, batch.num_rows - 1));
    }
    PreLookupResult want{std::vector<Ints>(3), std::vector<Ints>(3), {}};
    const auto add = [&](int64_t id, int64_t row, int64_t column) {
      size_t p = 2;
      while (p > 0 && id < first_of[p]) --p;
      while (batch.shard_rows[p] == 0) --p;  // a shard without rows begins where the next does
      want.ids[p].push_back(id - first_of[p]);
      want.indices[p].insert(want.indices[p].end(), {row, column});
    };
    std::vector<int32_t> is_empty(static_cast<size_t>(batch.num_rows), 1);
    for (size_t i = 0; i < batch.ids.size(); ++i) {
      if (batch.ids[i] < 0) continue;
      add(batch.ids[i], batch.rows[i], 100 + static_cast<int64_t>(i));
      is_empty[static_cast<size_t>(batch.rows[i])] = 0;
    }
    for (int64_t row = 0; batch.fill && row < batch.num_rows; ++row) {
      if (is_empty[static_cast<size_t>(row)] != 0)
        add(std::max<int64_t>(batch.default_id, 0), row, 0);
    }
    want.flags = is_empty;
    for (const int64_t id : batch.ids) want.flags.push_back(id >= 0 ? 1 : 0);

    PreLookupResult result;
    ASSERT_TRUE(IsOk(PreLookup(batch, &result)));
    EXPECT_EQ(result.ids, want.ids);
    EXPECT_EQ(result.indices, want.indices);
    EXPECT_EQ(result.flags, want.flags);
  }
}

TEST(PreLookup, DealsByEveryStrategy) {
  PreLookupBatch batch{{3, 2, 3}, {0, 0, 1}, {2, 2}, 2};
  PreLookupResult result;
  batch.strategy = PartitionStrategy::kMod;
  ASSERT_TRUE(IsOk(PreLookup(batch, &result)));
  EXPECT_EQ(result.ids, (std::vector<Ints>{{1}, {1, 1}}));
  batch.strategy = PartitionStrategy::kModEv;
  ASSERT_TRUE(IsOk(PreLookup(batch, &result)));
  EXPECT_EQ(result.ids, (std::vector<Ints>{{2}, {3, 3}}));
}

TEST(PreLookup, TakesNoIdsAndNoRows) {
  PreLookupResult result;
  ASSERT_TRUE(IsOk(PreLookup({{}, {}, {4, 2}, 0}, &result)));
  EXPECT_EQ(result.ids, (std::vector<Ints>{{}, {}}));
  EXPECT_TRUE(result.flags.empty());
}

TEST(PreLookup, NamesWhatIsWrong) {
  PreLookupResult result;
  EXPECT_TRUE(IsInvalid(PreLookup({{1}, {3}, {4, 2}, 3}, &result), {"sp_indices[0, 0] = 3"}));
  EXPECT_TRUE(IsInvalid(PreLookup({{6}, {0}, {4, 2}, 3}, &result), {"id 6", "[0, 6)"}));
  EXPECT_TRUE(IsInvalid(PreLookup({{1}, {0}, {}, 3}, &result), {"at least one shard"}));
  PreLookupBatch batch{{-1}, {0}, {4, 2}, 1};
  batch.prune = false;
  EXPECT_TRUE(IsInvalid(PreLookup(batch, &result), {"id -1", "prune"}));
  batch.prune = true;
  batch.default_id = 6;
  EXPECT_TRUE(IsInvalid(PreLookup(batch, &result), {"id 6"}));
}

}  // namespace
}  // namespace fused_embedding
