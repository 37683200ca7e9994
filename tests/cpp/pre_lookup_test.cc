#include "tf_ops/core/lookup/pre_lookup.h"

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

using Ints = std::vector<int64_t>;

struct Result {
  std::vector<Ints> ids, indices;  // [P]
  std::vector<int32_t> flags;
};

struct Batch {
  Ints ids, rows, shard_rows;
  int64_t num_rows = 0;
  int64_t default_id = -1;
  bool prune = true, fill = true;
  PartitionStrategy strategy = PartitionStrategy::kDiv;
};

std::vector<Array<int64_t>> Arrays(const Array<int64_t>& sizes, int64_t width) {
  std::vector<Array<int64_t>> arrays;
  for (int64_t p = 0; p < sizes.size(); ++p) arrays.emplace_back(width * sizes[p], -7);
  return arrays;
}

Array<Span<int64_t>> Spans(std::vector<Array<int64_t>>* arrays) {
  Array<Span<int64_t>> spans(static_cast<int64_t>(arrays->size()));
  for (size_t p = 0; p < arrays->size(); ++p) spans[static_cast<int64_t>(p)] = (*arrays)[p].span();
  return spans;
}

Status PreLookup(const Batch& batch, Result* result) {
  const Array<int64_t> ids = Array<int64_t>::Of(batch.ids);
  const Array<int64_t> shard_rows = Array<int64_t>::Of(batch.shard_rows);
  Array<int64_t> indices(2 * ids.size());
  for (int64_t i = 0; i < ids.size(); ++i) {
    indices[2 * i] = batch.rows[static_cast<size_t>(i)];
    indices[2 * i + 1] = 100 + i;
  }
  PreLookupInput in;
  in.pairs.ids = ids.view();
  in.pairs.indices = indices.view();
  in.pairs.num_rows = batch.num_rows;
  in.pairs.default_id = batch.default_id;
  in.pairs.prune = batch.prune;
  in.pairs.fill = batch.fill;
  in.shard_rows = shard_rows.view();
  in.strategy = batch.strategy;
  Array<int32_t> flags(batch.num_rows + ids.size(), -7);
  Array<int64_t> shard_sizes(shard_rows.size(), -7);
  PreLookupPlan plan;
  FE_RETURN_IF_ERROR(PlanPreLookup(in, flags.span(), shard_sizes.span(), &plan));
  std::vector<Array<int64_t>> shard_ids = Arrays(shard_sizes, 1);
  std::vector<Array<int64_t>> shard_indices = Arrays(shard_sizes, 2);
  RunPreLookup(in, plan, Spans(&shard_ids).view(), Spans(&shard_indices).view());
  *result = Result();
  for (const Array<int64_t>& shard : shard_ids) result->ids.push_back(shard.values());
  for (const Array<int64_t>& shard : shard_indices) result->indices.push_back(shard.values());
  result->flags = flags.values();
  return Status();
}

TEST(PreLookup, DoesTheExampleOfTheHeader) {
  Batch batch{{5, -1, 1}, {0, 0, 2}, {4, 2}, 3};
  Result result;
  ASSERT_TRUE(IsOk(PreLookup(batch, &result)));
  EXPECT_EQ(result.ids, (std::vector<Ints>{{1, 0}, {1}}));
  EXPECT_EQ(result.indices, (std::vector<Ints>{{2, 102, 1, 0}, {0, 100}}));
  EXPECT_EQ(result.flags, (std::vector<int32_t>{0, 1, 0, 1, 0, 1}));
}

TEST(PreLookup, AgreesWithItsDefinition) {
  Random random(19);
  for (int round = 0; round < 300; ++round) {
    Batch batch;
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
    Result want{std::vector<Ints>(3), std::vector<Ints>(3), {}};
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

    Result result;
    ASSERT_TRUE(IsOk(PreLookup(batch, &result)));
    EXPECT_EQ(result.ids, want.ids);
    EXPECT_EQ(result.indices, want.indices);
    EXPECT_EQ(result.flags, want.flags);
  }
}

TEST(PreLookup, DealsByEveryStrategy) {
  Batch batch{{3, 2, 3}, {0, 0, 1}, {2, 2}, 2};
  Result result;
  batch.strategy = PartitionStrategy::kMod;
  ASSERT_TRUE(IsOk(PreLookup(batch, &result)));
  EXPECT_EQ(result.ids, (std::vector<Ints>{{1}, {1, 1}}));
  batch.strategy = PartitionStrategy::kModEv;
  ASSERT_TRUE(IsOk(PreLookup(batch, &result)));
  EXPECT_EQ(result.ids, (std::vector<Ints>{{2}, {3, 3}}));
}

TEST(PreLookup, TakesNoIdsAndNoRows) {
  Result result;
  ASSERT_TRUE(IsOk(PreLookup({{}, {}, {4, 2}, 0}, &result)));
  EXPECT_EQ(result.ids, (std::vector<Ints>{{}, {}}));
  EXPECT_TRUE(result.flags.empty());
}

TEST(PreLookup, NamesWhatIsWrong) {
  Result result;
  EXPECT_TRUE(IsInvalid(PreLookup({{1}, {3}, {4, 2}, 3}, &result), {"sp_indices[0, 0] = 3"}));
  EXPECT_TRUE(IsInvalid(PreLookup({{6}, {0}, {4, 2}, 3}, &result), {"id 6", "[0, 6)"}));
  EXPECT_TRUE(IsInvalid(PreLookup({{1}, {0}, {}, 3}, &result), {"at least one shard"}));
  Batch batch{{-1}, {0}, {4, 2}, 1};
  batch.prune = false;
  EXPECT_TRUE(IsInvalid(PreLookup(batch, &result), {"id -1", "prune"}));
  batch.prune = true;
  batch.default_id = 6;
  EXPECT_TRUE(IsInvalid(PreLookup(batch, &result), {"id 6"}));
}

}  // namespace
}  // namespace fused_embedding
