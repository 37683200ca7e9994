#include "tf_ops/core/lookup/group/table_group_lookup.h"

#include <vector>

#include "tests/cpp/group_keys_testing.h"
#include "tests/cpp/table_testing.h"

namespace fused_embedding {
namespace {

FoundKeys Find(const std::vector<KeyColumnCase>& cases, int64_t num_tables, const CpuExec& exec) {
  std::vector<GroupColumn<float>> columns;
  Ints table_of_column;
  FoundKeys found;
  for (const KeyColumnCase& column : cases) {
    columns.push_back(column.Column());
    table_of_column.push_back(column.table);
    found.positions.emplace_back(column.ids.size(), -77);
  }
  std::vector<Span<int32_t>> positions;
  for (auto& of_column : found.positions) {
    positions.push_back({of_column.data(), static_cast<int64_t>(of_column.size())});
  }
  const int64_t n = static_cast<int64_t>(cases.size());
  GroupKeysInput<float> in;
  in.columns = {columns.data(), n};
  in.table_of_column = View(table_of_column);
  in.positions = {positions.data(), n};
  in.num_tables = num_tables;
  GroupKeys keys;
  found.status = FindGroupKeys(exec, in, &keys);
  found.default_positions = keys.default_positions;
  for (const TableKeys& table : keys.tables) {
    found.keys.emplace_back(table.keys().begin(), table.keys().end());
    found.counts.emplace_back(table.counts.span().begin(), table.counts.span().end());
  }
  return found;
}

TEST(FindGroupKeys, TheExampleOfItsHeader) {
  const FoundKeys found =
      Find({{{7, -1, 3}, {0, 0, 2}, 3, 5}, {{3, 9}, {0, 1}, 2}}, 1, SerialExec());
  ASSERT_TRUE(IsOk(found.status));
  EXPECT_EQ(found.keys, (std::vector<Ints>{{7, 3, 5, 9}}));
  EXPECT_EQ(found.counts, (std::vector<std::vector<int32_t>>{{1, 2, 0, 1}}));
  EXPECT_EQ(found.positions, (std::vector<std::vector<int32_t>>{{0, -1, 1}, {1, 3}}));
  EXPECT_EQ(found.default_positions, (std::vector<int32_t>{2, -1}));
}

TEST(FindGroupKeys, EqualsItsDefinitionForAnyNumberOfThreads) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const int64_t num_tables = RandomInt(&random, 1, 4);
    std::vector<KeyColumnCase> columns;
    for (int64_t c = RandomInt(&random, 1, 6); c > 0; --c) {
      // In some rounds a table is large enough for all threads.
      columns.push_back(RandomKeyColumn(&random, num_tables, round % 30 == 0 ? 60000 : 12));
    }
    const FoundKeys want = WantedKeys(columns, num_tables);
    for (const int num_threads : {1, 3}) {
      const FoundKeys found = Find(columns, num_tables, ThreadedExec(num_threads));
      ASSERT_TRUE(IsOk(found.status));
      ASSERT_TRUE(found == want) << "round " << round << ", " << num_threads << " threads";
    }
  }
}

TEST(FindGroupKeys, EveryIntegerIsAKey) {
  KeyColumnCase column{{kInt64Min, -1, kInt64Max}, {0, 0, 0}, 1};
  column.prune = false;
  const FoundKeys found = Find({column}, 1, SerialExec());
  ASSERT_TRUE(IsOk(found.status));
  EXPECT_EQ(found.keys, std::vector<Ints>{column.ids});
}

TEST(FindGroupKeys, NamesTheColumnOfABadRow) {
  const FoundKeys found = Find({{{1}, {0}, 1}, {{1}, {1}, 1}}, 1, SerialExec());
  EXPECT_TRUE(IsInvalid(found.status, {"column 1", "row_ids[0", "= 1"}));
}

TEST(PositionColumn, FillsWhereThereIsAPosition) {
  const KeyColumnCase of_keys{{7}, {0}, 2, 5};
  const std::vector<int32_t> positions{0};
  const std::vector<float> rows{1, 2};
  const IdSpan ids = Span<const int32_t>{positions.data(), 1};
  GroupColumn<float> column = PositionColumn(of_keys.Column(), ids, {1}, rows.data(), 2);
  EXPECT_TRUE(column.fills_default());
  EXPECT_EQ(column.filled_id(), 1);
  EXPECT_FALSE(column.ids_are_keys);
  column = PositionColumn(of_keys.Column(), ids, {-1}, rows.data(), 2);
  EXPECT_FALSE(column.fills_default());
  EXPECT_FALSE(column.fill);
  const DefaultPosition zero = DefaultPosition::Of(1, /*is_zero=*/true);
  column = PositionColumn(of_keys.Column(), ids, zero, rows.data(), 2);
  EXPECT_TRUE(column.fill);
  EXPECT_FALSE(column.fills_default());
  EXPECT_EQ(column.filled_id(), 1);
}

TEST(LookUpTables, LooksUpEachAsByItself) {
  // One large enough for all threads, and one that may not insert.
  Ints many(20000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(3 * i);
  const std::vector<Ints> keys = {many, {1, 2}, {5}, {}};
  std::vector<std::unique_ptr<EmbeddingTable>> tables;
  std::vector<std::vector<float>> values;
  std::vector<TableLookup> lookups;
  for (const Ints& of_table : keys) {
    tables.push_back(MakeTable(TestConfig()));
    values.emplace_back(2 * of_table.size(), -77.0f);
    TableLookup lookup;
    lookup.table = tables.back().get();
    lookup.insert = lookups.size() != 2;
    lookup.in.keys = View(of_table);
    lookup.out.values = reinterpret_cast<char*>(values.back().data());
    lookups.push_back(lookup);
  }
  // What uses the rows of a table finds them read.
  std::vector<std::vector<float>> seen(keys.size());
  const auto use = [&](const CpuExec&, int64_t t) {
    seen[static_cast<size_t>(t)] = values[static_cast<size_t>(t)];
    return Status();
  };
  ASSERT_TRUE(IsOk(LookUpTables(ThreadedExec(3), {lookups.data(), 4}, use)));
  for (size_t t = 0; t < keys.size(); ++t) {
    EXPECT_EQ(tables[t]->size(), t == 2 ? 0 : static_cast<int64_t>(keys[t].size()));
    EXPECT_EQ(values[t], std::vector<float>(2 * keys[t].size(), 0.5f));
    EXPECT_EQ(seen[t], values[t]);
  }
}

TEST(LookUpTables, ReportsTheFirstError) {
  TableConfig config = TestConfig();
  config.max_capacity = 1;
  const auto bounded = MakeTable(config), other = MakeTable(TestConfig());
  const Ints keys{1, 2};
  std::vector<float> values(4);
  std::vector<TableLookup> lookups(2);
  for (TableLookup& lookup : lookups) {
    lookup.table = &lookup == lookups.data() ? other.get() : bounded.get();
    lookup.insert = true;
    lookup.in.keys = View(keys);
    lookup.out.values = reinterpret_cast<char*>(values.data());
  }
  std::vector<int64_t> used;
  const auto use = [&](const CpuExec&, int64_t t) {
    used.push_back(t);
    return Status();
  };
  const Status status = LookUpTables(SerialExec(), {lookups.data(), 2}, use);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(bounded->size(), 0);
  EXPECT_EQ(used, std::vector<int64_t>{0});  // the rows of the other were not read
}

}  // namespace
}  // namespace fused_embedding
