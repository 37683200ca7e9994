#include "tf_ops/core/lookup/group/table_group_lookup.h"

#include <algorithm>
#include <map>
#include <vector>

#include "tests/cpp/core_testing.h"
#include "tests/cpp/table_testing.h"

namespace fused_embedding {
namespace {

struct ColumnCase {
  Ints ids;
  Ints row_ids;
  int64_t num_rows = 0;
  int64_t default_id = -1;
  int64_t table = 0;
  std::vector<float> weights = {};
  bool prune = true;

  GroupColumn<float> Column() const {
    GroupColumn<float> column;
    column.ids = View(ids);
    column.row_ids = {row_ids.data(), static_cast<int64_t>(row_ids.size()), 1, "row_ids"};
    column.weights = {weights.data(), static_cast<int64_t>(weights.size())};
    column.num_rows = num_rows;
    column.default_id = default_id;
    column.prune = prune;
    column.ids_are_keys = true;
    return column;
  }
};

// What FindGroupKeys finds, as vectors.
struct Found {
  Status status;
  std::vector<Ints> keys;
  std::vector<std::vector<int32_t>> counts;
  std::vector<std::vector<int32_t>> positions;
  std::vector<int32_t> default_positions;

  bool operator==(const Found& other) const {
    return keys == other.keys && counts == other.counts && positions == other.positions &&
           default_positions == other.default_positions;
  }
};

Found Find(const std::vector<ColumnCase>& cases, int64_t num_tables, const CpuExec& exec) {
  std::vector<GroupColumn<float>> columns;
  Ints table_of_column;
  Found found;
  for (const ColumnCase& column : cases) {
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

// The same by maps, one pair after the other.
Found Want(const std::vector<ColumnCase>& cases, int64_t num_tables) {
  Found want;
  want.keys.resize(static_cast<size_t>(num_tables));
  want.counts.resize(static_cast<size_t>(num_tables));
  std::vector<std::map<int64_t, int32_t>> position(static_cast<size_t>(num_tables));
  const auto number = [&](size_t table, int64_t key) {
    const auto next = static_cast<int32_t>(want.keys[table].size());
    const auto [at, is_new] = position[table].emplace(key, next);
    if (is_new) {
      want.keys[table].push_back(key);
      want.counts[table].push_back(0);
    }
    return at->second;
  };
  for (const ColumnCase& column : cases) {
    const size_t table = static_cast<size_t>(column.table);
    std::vector<bool> is_used(static_cast<size_t>(column.num_rows));
    want.positions.emplace_back();
    for (size_t i = 0; i < column.ids.size(); ++i) {
      const bool is_dropped =
          column.prune &&
          (column.ids[i] < 0 || (!column.weights.empty() && !(column.weights[i] > 0)));
      want.positions.back().push_back(is_dropped ? -1 : number(table, column.ids[i]));
      if (is_dropped) continue;
      ++want.counts[table][static_cast<size_t>(want.positions.back().back())];
      is_used[static_cast<size_t>(column.row_ids[i])] = true;
    }
    const bool fills =
        column.default_id >= 0 && std::find(is_used.begin(), is_used.end(), false) != is_used.end();
    want.default_positions.push_back(fills ? number(table, column.default_id) : -1);
  }
  return want;
}

ColumnCase RandomColumn(Random* random, int64_t num_tables, int64_t max_ids) {
  ColumnCase column;
  column.table = RandomInt(random, 0, num_tables - 1);
  column.num_rows = RandomInt(random, 1, 2 * max_ids);
  column.default_id = RandomInt(random, -1, 3);
  column.prune = RandomBool(random);
  const int64_t num_ids = RandomInt(random, 0, max_ids);
  const bool has_weights = RandomBool(random, 0.3);
  for (int64_t i = 0; i < num_ids; ++i) {
    column.ids.push_back(RandomInt(random, -2, max_ids));
    column.row_ids.push_back(RandomInt(random, 0, column.num_rows - 1));
    if (has_weights) column.weights.push_back(static_cast<float>(RandomInt(random, -1, 2)));
  }
  return column;
}

TEST(FindGroupKeys, TheExampleOfItsHeader) {
  const Found found = Find({{{7, -1, 3}, {0, 0, 2}, 3, 5}, {{3, 9}, {0, 1}, 2}}, 1, SerialExec());
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
    std::vector<ColumnCase> columns;
    for (int64_t c = RandomInt(&random, 1, 6); c > 0; --c) {
      // In some rounds a table is large enough for all threads.
      columns.push_back(RandomColumn(&random, num_tables, round % 30 == 0 ? 60000 : 12));
    }
    const Found want = Want(columns, num_tables);
    for (const int num_threads : {1, 3}) {
      const Found found = Find(columns, num_tables, ThreadedExec(num_threads));
      ASSERT_TRUE(IsOk(found.status));
      ASSERT_TRUE(found == want) << "round " << round << ", " << num_threads << " threads";
    }
  }
}

TEST(FindGroupKeys, EveryIntegerIsAKey) {
  ColumnCase column{{kInt64Min, -1, kInt64Max}, {0, 0, 0}, 1};
  column.prune = false;
  const Found found = Find({column}, 1, SerialExec());
  ASSERT_TRUE(IsOk(found.status));
  EXPECT_EQ(found.keys, std::vector<Ints>{column.ids});
}

TEST(FindGroupKeys, NamesTheColumnOfABadRow) {
  const Found found = Find({{{1}, {0}, 1}, {{1}, {1}, 1}}, 1, SerialExec());
  EXPECT_TRUE(IsInvalid(found.status, {"column 1", "row_ids[0", "= 1"}));
}

TEST(PositionColumn, FillsWhereThereIsAPosition) {
  const ColumnCase of_keys{{7}, {0}, 2, 5};
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
