#include "tf_ops/core/lookup/remote/remote_keys.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tests/cpp/key_message_testing.h"

namespace fused_embedding {
namespace {

struct KeysCase {
  struct Column {
    Ints ids, row_ids;
    int64_t num_rows = 0;
    int64_t default_id = -1;
    int64_t table = 0;
  };

  RemoteTables tables;
  std::vector<Column> columns;
  bool ids_are_keys = false;
};

struct Asked {
  Status status;
  std::vector<Ints> messages;
  Ints part_sizes;
  std::vector<std::vector<int32_t>> positions;
  std::vector<int32_t> default_positions;

  bool operator==(const Asked& other) const {
    return messages == other.messages && part_sizes == other.part_sizes &&
           positions == other.positions && default_positions == other.default_positions;
  }
};

constexpr int64_t kStep = 3;

std::vector<GroupColumn<float>> ColumnsOf(const KeysCase& in) {
  std::vector<GroupColumn<float>> columns;
  const Ints table_rows = RowsOfTables(in.tables);
  for (const KeysCase::Column& of_case : in.columns) {
    GroupColumn<float> column;
    column.ids = AsSpan(of_case.ids);
    column.row_ids = {of_case.row_ids.data(), static_cast<int64_t>(of_case.row_ids.size()), 1};
    column.num_rows = of_case.num_rows;
    column.default_id = of_case.default_id;
    column.dim = 1;
    column.ids_are_keys = in.ids_are_keys;
    column.table_rows = table_rows[static_cast<size_t>(of_case.table)];
    columns.push_back(column);
  }
  return columns;
}

Asked Ask(const KeysCase& in, const CpuExec& exec) {
  const std::vector<GroupColumn<float>> columns = ColumnsOf(in);
  Ints table_of_column;
  std::vector<Array<int32_t>> positions;
  std::vector<Span<int32_t>> spans;
  for (const KeysCase::Column& column : in.columns) {
    table_of_column.push_back(column.table);
    positions.emplace_back(static_cast<int64_t>(column.ids.size()), -77);
    spans.push_back(positions.back().span());
  }
  GroupKeysInput<float> keys_in;
  keys_in.columns = AsSpan(columns);
  keys_in.table_of_column = AsSpan(std::as_const(table_of_column));
  keys_in.positions = AsSpan(std::as_const(spans));
  keys_in.num_tables = in.tables.num_tables();
  Asked asked;
  RemoteKeys found;
  asked.status = FindRemoteKeys(exec, keys_in, in.tables, in.ids_are_keys, &found);
  if (!asked.status.ok()) return asked;
  for (KeyMessage& message : found.messages) {
    message.step = kStep;
    Array<int64_t> words(NumMessageWords(message), -77);
    WriteMessage(message, words.span());
    asked.messages.push_back(words.values());
  }
  for (const Array<int32_t>& of_column : positions) asked.positions.push_back(of_column.values());
  asked.part_sizes = found.part_sizes;
  asked.default_positions = found.keys.default_positions;
  return asked;
}

// The keys of each part of one table by maps, one pair after the other.
class NaiveTable {
 public:
  NaiveTable(const RemoteTables& tables, size_t table, size_t first_part)
      : strategy_(tables.strategies[table]),
        rows_(
            tables.part_rows.begin() + static_cast<int64_t>(first_part),
            tables.part_rows.begin() + static_cast<int64_t>(first_part) + tables.num_parts[table]),
        keys(rows_.size()),
        counts(rows_.size()) {}

  void Add(int64_t key, bool is_occurrence) {
    const auto [part, local] = PlaceOf(key);
    const auto place = std::make_pair(part, keys[part].size());
    const auto [at, is_new] = places_.emplace(key, place);
    if (is_new) {
      keys[part].push_back(local);
      counts[part].push_back(0);
    }
    counts[part][at->second.second] += is_occurrence;
  }

  // In the rows of all parts, once all keys were added.
  int32_t PositionOf(int64_t key) const {
    const auto [part, number] = places_.at(key);
    size_t position = number;
    for (size_t p = 0; p < part; ++p) position += keys[p].size();
    return static_cast<int32_t>(position);
  }

 private:
  std::pair<size_t, int64_t> PlaceOf(int64_t key) const {
    const int64_t num_parts = static_cast<int64_t>(rows_.size());
    switch (strategy_) {
      case PartitionStrategy::kDiv:
        break;
      case PartitionStrategy::kMod:
        return {static_cast<size_t>(key % num_parts), key / num_parts};
      case PartitionStrategy::kModEv:
        return {static_cast<size_t>((key % 1000 + 1000) % 1000 % num_parts), key};
      case PartitionStrategy::kHash:
        return {static_cast<size_t>(Mix64(static_cast<uint64_t>(key)) %
                                    static_cast<uint64_t>(num_parts)),
                key};
    }
    size_t part = 0;
    for (; key >= rows_[part]; ++part) key -= rows_[part];
    return {part, key};
  }

  PartitionStrategy strategy_;
  Ints rows_;
  std::map<int64_t, std::pair<size_t, size_t>> places_;

 public:
  std::vector<Ints> keys;  // of each part
  std::vector<std::vector<int32_t>> counts;
};

bool HasEmptyRow(const KeysCase::Column& column) {
  std::vector<bool> is_used(static_cast<size_t>(column.num_rows));
  for (size_t i = 0; i < column.ids.size(); ++i) {
    if (column.ids[i] >= 0) is_used[static_cast<size_t>(column.row_ids[i])] = true;
  }
  return std::find(is_used.begin(), is_used.end(), false) != is_used.end();
}

std::vector<NaiveTable> NaiveTables(const KeysCase& in) {
  std::vector<NaiveTable> tables;
  size_t first_part = 0;
  for (size_t t = 0; t < in.tables.num_parts.size(); ++t) {
    tables.emplace_back(in.tables, t, first_part);
    first_part += static_cast<size_t>(in.tables.num_parts[t]);
  }
  for (const KeysCase::Column& column : in.columns) {
    NaiveTable& table = tables[static_cast<size_t>(column.table)];
    for (const int64_t id : column.ids) {
      if (id >= 0) table.Add(id, true);
    }
    if (!HasEmptyRow(column)) continue;
    if (column.default_id >= 0 || !in.ids_are_keys) {
      table.Add(std::max<int64_t>(column.default_id, 0), false);
    }
  }
  return tables;
}

Asked Want(const KeysCase& in) {
  Asked want;
  const std::vector<NaiveTable> tables = NaiveTables(in);
  for (const KeysCase::Column& column : in.columns) {
    const NaiveTable& table = tables[static_cast<size_t>(column.table)];
    want.positions.emplace_back();
    for (const int64_t id : column.ids) {
      want.positions.back().push_back(id < 0 ? -1 : table.PositionOf(id));
    }
    int32_t code = -1;
    if (HasEmptyRow(column) && column.default_id >= 0) code = table.PositionOf(column.default_id);
    if (HasEmptyRow(column) && column.default_id < 0 && !in.ids_are_keys) {
      code = -2 - table.PositionOf(0);
    }
    want.default_positions.push_back(code);
  }
  std::vector<Message> messages(static_cast<size_t>(in.tables.num_servers),
                                Message{kStep, {}, in.ids_are_keys, {}});
  for (const NaiveTable& table : tables) {
    for (size_t p = 0; p < table.keys.size(); ++p) {
      const size_t part = want.part_sizes.size();
      Message& message = messages[static_cast<size_t>(in.tables.part_servers[part])];
      want.part_sizes.push_back(static_cast<int64_t>(table.keys[p].size()));
      message.keys.push_back(table.keys[p]);
      if (!in.ids_are_keys) continue;
      message.counts.insert(message.counts.end(), table.counts[p].begin(), table.counts[p].end());
    }
  }
  for (const Message& message : messages) want.messages.push_back(Write(message).values());
  return want;
}

RemoteTables RandomTables(Random* random, bool ids_are_keys, int64_t max_rows) {
  RemoteTables tables;
  tables.num_servers = RandomInt(random, 1, 3);
  for (int64_t t = RandomInt(random, 1, 3); t > 0; --t) {
    const int64_t num_rows = RandomInt(random, 1, max_rows), num_parts = RandomInt(random, 1, 4);
    const PartitionStrategy strategy =
        kStrategies[(ids_are_keys ? 2 : 0) + RandomInt(random, 0, 1)];
    tables.strategies.push_back(strategy);
    tables.num_parts.push_back(num_parts);
    int64_t left = num_rows;
    for (int64_t p = 0; p < num_parts; ++p) {
      int64_t rows = p + 1 < num_parts ? RandomInt(random, 0, left) : left;
      if (strategy == PartitionStrategy::kMod) rows = (num_rows + num_parts - 1 - p) / num_parts;
      left -= rows;
      tables.part_rows.push_back(rows);
      tables.part_servers.push_back(RandomInt(random, 0, tables.num_servers - 1));
    }
  }
  return tables;
}

KeysCase RandomKeysCase(Random* random, int64_t max_ids) {
  KeysCase in;
  in.ids_are_keys = RandomBool(random);
  in.tables = RandomTables(random, in.ids_are_keys, 2 * max_ids);
  const Ints rows = RowsOfTables(in.tables);
  for (int64_t c = RandomInt(random, 1, 5); c > 0; --c) {
    KeysCase::Column column;
    column.table = RandomInt(random, 0, in.tables.num_tables() - 1);
    const int64_t last = rows[static_cast<size_t>(column.table)] - 1;
    column.num_rows = RandomInt(random, 1, max_ids);
    column.default_id = RandomBool(random) ? -1 : RandomInt(random, 0, last);
    for (int64_t i = RandomInt(random, 0, max_ids); i > 0; --i) {
      column.ids.push_back(RandomInt(random, -1, last));
      column.row_ids.push_back(RandomInt(random, 0, column.num_rows - 1));
    }
    in.columns.push_back(std::move(column));
  }
  return in;
}

TEST(RemoteKeys, TheExampleOfTheirHeader) {
  KeysCase in;
  in.tables = {{PartitionStrategy::kMod}, {2}, {4, 4}, {0, 1}, 2};
  in.columns = {{{7, 2, 7, 4}, {0, 0, 0, 0}, 1}};
  ASSERT_TRUE(IsOk(CheckRemoteTables(in.tables)));
  const Asked asked = Ask(in, SerialExec());
  ASSERT_TRUE(IsOk(asked.status));
  EXPECT_EQ(asked.messages, (std::vector<Ints>{{kFormat, kStep, 1, 2, 1 + (int64_t{2} << 32)},
                                               {kFormat, kStep, 1, 1, 3}}));
  EXPECT_EQ(asked.positions, (std::vector<std::vector<int32_t>>{{2, 0, 2, 1}}));
  EXPECT_EQ(asked.part_sizes, (Ints{2, 1}));
}

TEST(RemoteKeys, EqualTheirDefinitionForAnyNumberOfThreads) {
  Random random(6);
  for (int round = 0; round < NumCases(400); ++round) {
    // In some rounds a table is large enough for all threads.
    const KeysCase in = RandomKeysCase(&random, round % 100 == 99 ? 50000 : 12);
    ASSERT_TRUE(IsOk(CheckRemoteTables(in.tables)));
    const Asked want = Want(in);
    for (const int num_threads : {1, 3}) {
      const Asked asked = Ask(in, ThreadedExec(num_threads));
      ASSERT_TRUE(IsOk(asked.status));
      ASSERT_TRUE(asked == want) << "round " << round << ", " << num_threads << " threads";
    }
  }
}

TEST(RemoteKeys, AnIdThatNoPartHasNamesAColumnOfItsTable) {
  KeysCase in;
  in.tables = {{PartitionStrategy::kDiv, PartitionStrategy::kMod}, {1, 2}, {9, 4, 1}, {0, 0, 0}, 1};
  in.columns = {{{8}, {0}, 1, -1, 0}, {{0, 3}, {0, 0}, 1, -1, 1}};
  EXPECT_TRUE(IsInvalid(Ask(in, SerialExec()).status, {"column 1", "id 3"}));
}

TEST(RemoteKeys, TablesAreChecked) {
  const RemoteTables right = {
      {PartitionStrategy::kDiv, PartitionStrategy::kHash}, {2, 1}, {4, 3, 0}, {0, 1, 0}, 2};
  ASSERT_TRUE(IsOk(CheckRemoteTables(right)));
  EXPECT_EQ(RowsOfTables(right), (Ints{7, 0}));
  const auto check = [&](auto change) {
    RemoteTables tables = right;
    change(&tables);
    return CheckRemoteTables(tables);
  };
  for (const int64_t parts : {int64_t{0}, int64_t{-1}, int64_t{3}, int64_t{1} << 62}) {
    EXPECT_TRUE(
        IsInvalid(check([&](RemoteTables* t) { t->num_parts[0] = parts; }), {"num_parts and"}));
  }
  EXPECT_TRUE(IsInvalid(check([](RemoteTables* t) { t->num_parts = {2, 1, 0}; }), {"num_parts"}));
  EXPECT_TRUE(IsInvalid(check([](RemoteTables* t) { t->num_parts = {4, -1}; }), {"num_parts"}));
  EXPECT_TRUE(IsInvalid(check([](RemoteTables* t) { t->strategies.pop_back(); }), {"num_parts"}));
  EXPECT_TRUE(IsInvalid(check([](RemoteTables* t) { t->part_rows.pop_back(); }), {"part_rows"}));
  EXPECT_TRUE(
      IsInvalid(check([](RemoteTables* t) { t->part_servers.pop_back(); }), {"part_servers one"}));
  for (const int64_t server : {int64_t{2}, int64_t{-1}, kInt64Min, kInt64Max}) {
    EXPECT_TRUE(IsInvalid(check([&](RemoteTables* t) { t->part_servers[1] = server; }),
                          {"part_servers has", "outside [0, 2)"}));
  }
  for (const int64_t rows : {int64_t{-1}, kInt64Min, kInt64Max}) {
    EXPECT_TRUE(IsInvalid(check([&](RemoteTables* t) { t->part_rows[1] = rows; }), {"[1][0]"}));
  }
}

// The sum of the numbers of parts overflows before each of them is checked.
TEST(RemoteKeys, HugeNumbersOfPartsAreRefused) {
  const int64_t half = int64_t{1} << 62;
  const RemoteTables tables = {
      {PartitionStrategy::kDiv, PartitionStrategy::kDiv}, {half, half}, {1}, {0}, 1};
  EXPECT_TRUE(IsInvalid(CheckRemoteTables(tables), {"num_parts and"}));
}

}  // namespace
}  // namespace fused_embedding
