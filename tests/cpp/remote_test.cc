#include <algorithm>
#include <map>
#include <utility>

#include "tests/cpp/partition_testing.h"
#include "tf_ops/core/lookup/remote/key_message.h"
#include "tf_ops/core/lookup/remote/packed_rows.h"
#include "tf_ops/core/lookup/remote/remote_keys.h"
#include "tf_ops/core/lookup/remote/remote_rows.h"

namespace fused_embedding {
namespace {

constexpr int64_t kFormat = 0x46456B6579730001;  // "FEkeys", version 1
constexpr int64_t kFormatWithCounts = kFormat | 0x100;

// --- Messages ---

// The content of a message, as vectors.
struct Message {
  int64_t step = -1;
  std::vector<Ints> keys;  // of each part
  bool has_counts = false;
  std::vector<int32_t> counts;  // of all keys

  bool operator==(const Message& other) const {
    return step == other.step && keys == other.keys && has_counts == other.has_counts &&
           counts == other.counts;
  }
};

Array<int64_t> Write(const Message& message) {
  Ints num_keys, all;
  for (const Ints& keys : message.keys) {
    num_keys.push_back(static_cast<int64_t>(keys.size()));
    all.insert(all.end(), keys.begin(), keys.end());
  }
  const int64_t num_parts = static_cast<int64_t>(num_keys.size());
  const int64_t total = static_cast<int64_t>(all.size());
  Array<int64_t> words(NumMessageWords(num_parts, total, message.has_counts), -7);
  const Array<int32_t> counts = Array<int32_t>::Of(message.counts);
  const Span<int64_t> keys = WriteMessage({message.step, AsSpan(num_keys), message.has_counts},
                                          counts.view(), words.span());
  EXPECT_EQ(keys.size, total);
  std::copy(all.begin(), all.end(), keys.begin());
  return words;
}

Status Read(const Array<int64_t>& words, int64_t num_parts, bool has_counts, Message* message) {
  KeyMessage read;
  FE_RETURN_IF_ERROR(ReadMessage(words.view(), num_parts, has_counts, &read));
  *message = {read.header.step, {}, read.header.has_counts, {}};
  const int64_t* key = read.keys.begin();
  for (const int64_t num_keys : read.header.num_keys) {
    message->keys.emplace_back(key, key + num_keys);
    key += num_keys;
  }
  EXPECT_EQ(key, read.keys.end());
  message->counts.assign(read.counts.span().begin(), read.counts.span().end());
  return Status();
}

Message RandomMessage(Random* random) {
  Message message;
  message.step = RandomBool(random) ? RandomInt(random, -1, 5) : kInt64Max;
  message.has_counts = RandomBool(random);
  for (int64_t p = RandomInt(random, 0, 4); p > 0; --p) {
    message.keys.emplace_back();
    for (int64_t i = RandomInt(random, 0, 4); i > 0; --i) {
      message.keys.back().push_back(static_cast<int64_t>((*random)()));
      if (!message.has_counts) continue;
      message.counts.push_back(static_cast<int32_t>(RandomInt(random, 0, 0x7FFFFFFF)));
    }
  }
  return message;
}

int64_t NumParts(const Message& message) { return static_cast<int64_t>(message.keys.size()); }

TEST(KeyMessage, TheExampleOfItsHeader) {
  const Message message = {4, {{7, 3}, {9}}, true, {1, 2, 5}};
  EXPECT_EQ(Write(message).values(),
            (Ints{kFormatWithCounts, 4, 2, 2, 1, 7, 3, 9, 1 + (int64_t{2} << 32), 5}));
  EXPECT_EQ(Write({-1, {{7, 3}, {9}}, false, {}}).values(), (Ints{kFormat, -1, 2, 2, 1, 7, 3, 9}));
}

TEST(KeyMessage, IsReadAsItWasWritten) {
  Random random(1);
  for (int round = 0; round < NumCases(500); ++round) {
    const Message message = RandomMessage(&random);
    Message read;
    ASSERT_TRUE(IsOk(Read(Write(message), NumParts(message), message.has_counts, &read)));
    ASSERT_TRUE(read == message) << "round " << round;
  }
}

TEST(KeyMessage, OfAnotherKindIsRefused) {
  Random random(2);
  for (int round = 0; round < NumCases(200); ++round) {
    const Message message = RandomMessage(&random);
    const Array<int64_t> words = Write(message);
    Message read;
    EXPECT_TRUE(IsInvalid(Read(words, NumParts(message), !message.has_counts, &read),
                          {"message has format", "must run the same version"}));
    for (const int64_t other : {-1, 1}) {
      if (NumParts(message) + other < 0) continue;
      EXPECT_TRUE(IsInvalid(Read(words, NumParts(message) + other, message.has_counts, &read),
                            {"message", "tables", "must run the same version"}));
    }
  }
}

TEST(KeyMessage, IsRefusedIfAnyOfItIsMissing) {
  Random random(3);
  for (int round = 0; round < NumCases(200); ++round) {
    const Message message = RandomMessage(&random);
    Ints words = Write(message).values();
    words.push_back(0);
    Message read;
    EXPECT_TRUE(IsInvalid(
        Read(Array<int64_t>::Of(words), NumParts(message), message.has_counts, &read), {"words"}));
    words.pop_back();
    while (!words.empty()) {
      words.pop_back();
      EXPECT_TRUE(
          IsInvalid(Read(Array<int64_t>::Of(words), NumParts(message), message.has_counts, &read),
                    {"message", "must run the same version"}));
    }
  }
}

// Every word becomes another one: an error, or a message that has the same words but for the half
// that holds no count.
TEST(KeyMessage, OfAnyWordsIsRefusedOrReadAsItIs) {
  constexpr int64_t kWords[] = {kInt64Min,
                                kInt64Min + 1,
                                -2,
                                -1,
                                0,
                                1,
                                2,
                                3,
                                5,
                                6,
                                7,
                                8,
                                9,
                                int64_t{1} << 31,
                                int64_t{1} << 32,
                                int64_t{1} << 60,
                                kInt64Max - 1,
                                kInt64Max,
                                kFormat,
                                kFormat + 1,
                                kFormatWithCounts};
  Random random(4);
  int num_read = 0;
  for (int round = 0; round < NumCases(100); ++round) {
    const Message message = RandomMessage(&random);
    const Array<int64_t> words = Write(message);
    for (int64_t at = 0; at < words.size(); ++at) {
      for (const int64_t word : kWords) {
        Array<int64_t> changed = Array<int64_t>::Of(words.values());
        changed[at] = word;
        Message read;
        const Status status = Read(changed, NumParts(message), message.has_counts, &read);
        if (!status.ok()) {
          EXPECT_TRUE(IsInvalid(status, {"message", "must run the same version"}));
          continue;
        }
        ++num_read;
        for (const int32_t count : read.counts) EXPECT_GE(count, 0);
        Array<int64_t> again = Write(read);
        ASSERT_EQ(again.size(), changed.size());
        const bool has_half = read.has_counts && read.counts.size() % 2 == 1;
        if (has_half && at == again.size() - 1) again[at] |= word & ~int64_t{0xFFFFFFFF};
        ASSERT_EQ(again.values(), changed.values()) << "word " << at << " = " << word;
      }
    }
  }
  EXPECT_GT(num_read, 100);
}

TEST(SplitMessage, SaysWhereTheRowsOfEachTableGo) {
  const Array<int64_t> words = Write({4, {{7, 3}, {}, {9}}, true, {1, 2, 5}});
  KeyMessage message;
  ASSERT_TRUE(IsOk(ReadMessage(words.view(), 3, true, &message)));
  const Ints row_bytes = {8, 100, 3};
  std::vector<MessagePart> parts;
  int64_t num_bytes = 0;
  ASSERT_TRUE(IsOk(SplitMessage(message, AsSpan(row_bytes), &parts, &num_bytes)));
  EXPECT_EQ(num_bytes, 19);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ((Ints{parts[0].first_byte, parts[1].first_byte, parts[2].first_byte}),
            (Ints{0, 16, 16}));
  EXPECT_EQ(Ints(parts[2].keys.begin(), parts[2].keys.end()), Ints{9});
  EXPECT_EQ(parts[0].counts[1], 2);
  EXPECT_EQ(parts[1].counts.size, 0);
  EXPECT_EQ(parts[2].counts[0], 5);
  parts.clear();
  const Ints many_bytes = {int64_t{1} << 62, 1, int64_t{1} << 62};
  EXPECT_TRUE(IsInvalid(SplitMessage(message, AsSpan(many_bytes), &parts, &num_bytes),
                        {"do not fit in memory"}));
}

// --- Packed rows ---

PackedLayout RandomPackedLayout(Random* random) {
  PackedLayout layout;
  layout.num_servers = RandomInt(random, 1, 3);
  for (int64_t t = RandomInt(random, 1, 4); t > 0; --t) {
    layout.dims.push_back(RandomInt(random, 1, 5));
    layout.num_parts.push_back(RandomInt(random, 1, 4));
    for (int64_t p = layout.num_parts.back(); p > 0; --p) {
      layout.part_servers.push_back(RandomInt(random, 0, layout.num_servers - 1));
    }
  }
  return layout;
}

// What the servers send: part after part, each value another one.
struct Packed {
  std::vector<Array<float>> servers;
  std::vector<std::vector<float>> tables;
};

Packed Pack(const PackedLayout& layout, const Ints& part_sizes) {
  std::vector<std::vector<float>> servers(static_cast<size_t>(layout.num_servers));
  Packed packed;
  float next = 0;
  size_t part = 0;
  for (size_t t = 0; t < layout.dims.size(); ++t) {
    packed.tables.emplace_back();
    for (int64_t p = 0; p < layout.num_parts[t]; ++p, ++part) {
      for (int64_t i = 0; i < part_sizes[part] * layout.dims[t]; ++i, ++next) {
        packed.tables[t].push_back(next);
        servers[static_cast<size_t>(layout.part_servers[part])].push_back(next);
      }
    }
  }
  for (const auto& values : servers) packed.servers.push_back(Array<float>::Of(values));
  return packed;
}

void ExpectUnpacks(const PackedPlaces& places, const Packed& packed) {
  std::vector<const float*> servers;
  std::vector<float*> again;
  std::vector<Array<float>> copies;
  for (const Array<float>& values : packed.servers) {
    servers.push_back(values.view().data);
    copies.emplace_back(values.size(), -77.0f);
    again.push_back(copies.back().data());
  }
  ContiguousTables<float> tables;
  ASSERT_TRUE(IsOk(tables.Gather(places, AsSpan(std::as_const(servers)))));
  for (size_t t = 0; t < packed.tables.size(); ++t) {
    const std::vector<float>& want = packed.tables[t];
    const int64_t table = static_cast<int64_t>(t);
    ASSERT_EQ(places.tables[t].num_values, static_cast<int64_t>(want.size()));
    Array<float> rows(places.tables[t].num_values, -77.0f);
    UnpackTable<float>(places, table, AsSpan(std::as_const(servers)), rows.data());
    EXPECT_EQ(rows.values(), want);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), tables[table]));
    PackTable<float>(places, table, rows.view().data, AsSpan(std::as_const(again)));
  }
  for (size_t s = 0; s < copies.size(); ++s) {
    EXPECT_EQ(copies[s].bytes(), packed.servers[s].bytes());
  }
}

TEST(PackedRows, TheExampleOfItsHeader) {
  const PackedLayout layout = {{2, 1}, {2, 1}, {0, 1, 0}, 2};
  ASSERT_TRUE(IsOk(CheckPackedLayout(layout)));
  PackedPlaces places;
  const Ints part_sizes = {1, 2, 3};
  ASSERT_TRUE(IsOk(PlacePackedRows(layout, AsSpan(part_sizes), &places)));
  EXPECT_EQ(places.server_sizes, (Ints{5, 4}));
  EXPECT_EQ(places.tables[0].num_rows, 3);
  EXPECT_EQ(places.tables[1].num_rows, 3);
  EXPECT_EQ(places.parts[2].offset, 2);
}

TEST(PackedRows, AreUnpackedAsTheyWerePacked) {
  Random random(5);
  for (int round = 0; round < NumCases(300); ++round) {
    const PackedLayout layout = RandomPackedLayout(&random);
    ASSERT_TRUE(IsOk(CheckPackedLayout(layout)));
    Ints part_sizes;
    for (size_t p = 0; p < layout.part_servers.size(); ++p) {
      part_sizes.push_back(RandomInt(&random, 0, 3));
    }
    PackedPlaces places;
    ASSERT_TRUE(IsOk(PlacePackedRows(layout, AsSpan(part_sizes), &places)));
    const Packed packed = Pack(layout, part_sizes);
    Ints sizes;
    for (const Array<float>& values : packed.servers) sizes.push_back(values.size());
    ASSERT_TRUE(IsOk(CheckPackedSizes(places, AsSpan(sizes))));
    ExpectUnpacks(places, packed);
    ++sizes.back();
    EXPECT_TRUE(IsInvalid(CheckPackedSizes(places, AsSpan(sizes)), {"rows of server"}));
  }
}

TEST(PackedRows, LayoutsAreChecked) {
  const PackedLayout right = {{2, 1}, {2, 1}, {0, 1, 0}, 2};
  const auto check = [&](auto change) {
    PackedLayout layout = right;
    change(&layout);
    return CheckPackedLayout(layout);
  };
  for (const int64_t parts : {int64_t{0}, int64_t{-1}, int64_t{4}, kInt64Min, kInt64Max}) {
    EXPECT_TRUE(
        IsInvalid(check([&](PackedLayout* l) { l->num_parts[1] = parts; }), {"num_parts must be"}));
  }
  for (const int64_t server : {int64_t{2}, int64_t{-1}, kInt64Min, kInt64Max}) {
    EXPECT_TRUE(IsInvalid(check([&](PackedLayout* l) { l->part_servers[1] = server; }),
                          {"part_servers has", "outside [0, 2)"}));
  }
  for (const int64_t dim : {int64_t{0}, int64_t{-1}, kInt64Min}) {
    EXPECT_TRUE(IsInvalid(check([&](PackedLayout* l) { l->dims[0] = dim; }), {"dims must be"}));
  }
  EXPECT_TRUE(IsInvalid(check([](PackedLayout* l) { l->dims.pop_back(); }), {"one entry"}));
  EXPECT_TRUE(IsInvalid(check([](PackedLayout* l) { l->num_parts.pop_back(); }), {"one entry"}));
  EXPECT_TRUE(IsInvalid(check([](PackedLayout* l) { l->part_servers.pop_back(); }), {"one for"}));
}

TEST(PackedRows, NumbersOfRowsAreChecked) {
  const PackedLayout layout = {{2, 1}, {2, 1}, {0, 1, 0}, 2};
  for (size_t p = 0; p < 3; ++p) {
    for (const int64_t size : {int64_t{-1}, kInt64Min, kInt64Max}) {
      Ints part_sizes = {1, 2, 3};
      part_sizes[p] = size;
      PackedPlaces places;
      EXPECT_TRUE(IsInvalid(PlacePackedRows(layout, AsSpan(part_sizes), &places),
                            {"part_sizes[", "must be a number of rows"}));
    }
  }
  // Each part fits, but not all of a table.
  const PackedLayout ones = {{1}, {2}, {0, 1}, 2};
  const Ints part_sizes = {kInt64Max, 1};
  PackedPlaces places;
  EXPECT_TRUE(IsInvalid(PlacePackedRows(ones, AsSpan(part_sizes), &places), {"part_sizes[1] = 1"}));
  EXPECT_TRUE(IsInvalid(PlacePackedRows(ones, {}, &places), {"one element for each of the 2"}));
}

// --- Keys ---

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
  RemoteKeysPlan plan;
  asked.status = PlanRemoteKeys(exec, keys_in, in.tables, &plan);
  if (!asked.status.ok()) return asked;
  std::vector<Array<int64_t>> messages;
  std::vector<Span<int64_t>> words;
  for (int64_t s = 0; s < in.tables.num_servers; ++s) {
    messages.emplace_back(plan.num_words(s, in.ids_are_keys), -77);
    words.push_back(messages.back().span());
  }
  asked.status =
      RunRemoteKeys(plan, in.tables, kStep, in.ids_are_keys, AsSpan(std::as_const(words)));
  for (const Array<int64_t>& message : messages) asked.messages.push_back(message.values());
  for (const Array<int32_t>& of_column : positions) asked.positions.push_back(of_column.values());
  asked.part_sizes = plan.part_sizes;
  asked.default_positions = plan.keys.default_positions;
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
  EXPECT_EQ(asked.messages,
            (std::vector<Ints>{{kFormat, kStep, 1, 2, 1, 2}, {kFormat, kStep, 1, 1, 3}}));
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
