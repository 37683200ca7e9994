#include "tf_ops/core/checkpoint/checkpoint.h"

#include "tests/cpp/checkpoint_testing.h"
#include "tf_ops/core/checkpoint/format.h"
#include "tf_ops/core/checkpoint/writer.h"

namespace fused_embedding {
namespace {

struct Options {
  const char* name;
  ValueType type;
  int64_t dim;
  AdmissionKind admission;
  std::vector<Slot> slots;
  InitializerKind initializer;
};
class RoundTrip : public CheckpointTest, public ::testing::WithParamInterface<Options> {};

INSTANTIATE_TEST_SUITE_P(
    Checkpoint, RoundTrip,
    ::testing::Values(
        Options{"Plain", ValueType::kFloat, 3, AdmissionKind::kAll, {}, InitializerKind::kUniform},
        Options{"Slots",
                ValueType::kFloat,
                3,
                AdmissionKind::kAll,
                {kAccumulator, kNorm},
                InitializerKind::kNormal},
        Options{"Double",
                ValueType::kDouble,
                3,
                AdmissionKind::kCounter,
                {kNorm, kAccumulator},
                InitializerKind::kTruncatedNormal},
        Options{"Half",
                ValueType::kHalf,
                3,
                AdmissionKind::kBloom,
                {kAccumulator},
                InitializerKind::kMatrix},
        Options{"BFloat16",
                ValueType::kBFloat16,
                1,
                AdmissionKind::kCounter,
                {kNorm},
                InitializerKind::kDebug},
        Options{"Wide",
                ValueType::kFloat,
                1030,
                AdmissionKind::kAll,
                {kNorm},
                InitializerKind::kConstant}),
    [](const auto& info) { return info.param.name; });

TEST_P(RoundTrip, GivesTheSameTable) {
  const Options& options = GetParam();
  Random random(1);
  TableConfig config = ConfigOf(options.dim, options.type);
  config.initializer.kind = options.initializer;
  if (options.initializer == InitializerKind::kMatrix) {
    config.initializer.matrix.resize(static_cast<size_t>(7 * config.layout.value_bytes()));
    for (char& byte : config.initializer.matrix) byte = static_cast<char>(random());
  }
  config.admission = {options.admission, 3, 200000, 7};
  const TablePtr table = MakeTable(config);
  AddSlots(options.slots, table.get());
  const std::vector<int64_t> keys = RandomKeys(2000, &random);
  const std::vector<int64_t> some(keys.begin(), keys.begin() + 900);
  Train(keys, 2, 5, table.get());
  Train(some, 3, 8, table.get());
  Scramble(keys, &random, table.get());
  table->set_step(1234567890123);
  const Content want = ContentOf(*table);
  ASSERT_EQ(want.rows.size(), options.admission == AdmissionKind::kAll ? 2000u : 900u);
  ASSERT_EQ(want.filtered.size(), options.admission == AdmissionKind::kCounter ? 1100u : 0u);

  const TablePtr restored = MakeTable(config);
  Train({1, 2, 3, 4, 5}, 9, 9, restored.get());
  std::string warning = "?";
  ASSERT_TRUE(IsOk(Restore({Saved(*table)}, restored.get(), {}, &warning)));
  EXPECT_EQ(warning, "");
  EXPECT_TRUE(ContentOf(*restored) == want);
  EXPECT_EQ(restored->step(), 1234567890123);
  EXPECT_EQ(restored->layout().slots, table->layout().slots);

  // They stay the same: counts of keys not admitted, first values and slots are those of the other.
  for (EmbeddingTable* both : {table.get(), restored.get()}) {
    Train(keys, 1, 9, both);
    Train({123456, 654321}, 3, 9, both);
  }
  EXPECT_GT(table->size(), options.admission == AdmissionKind::kAll ? 2001 : 1990);
  EXPECT_TRUE(ContentOf(*restored) == ContentOf(*table));
}

TEST_F(CheckpointTest, EmptyTable) {
  const TablePtr table = MakeTable(ConfigOf());
  const TablePtr restored = MakeTable(ConfigOf());
  Train({1, 2, 3}, 1, 1, restored.get());
  ASSERT_TRUE(IsOk(Restore({Saved(*table)}, restored.get())));
  EXPECT_EQ(restored->size(), 0);
}

TEST_F(CheckpointTest, ManyBlocks) {
  Random random(2);
  const TablePtr table = MakeTable(ConfigOf(128));
  AddSlots({{"a", 128, 1}}, table.get());
  const std::vector<int64_t> keys = RandomKeys(20000, &random);  // a shard is 5 MB
  Train(keys, 1, 1, table.get());
  Scramble({keys.begin(), keys.begin() + 5000}, &random, table.get());
  const TablePtr restored = MakeTable(ConfigOf(128));
  ASSERT_TRUE(IsOk(Restore({Saved(*table)}, restored.get())));
  EXPECT_TRUE(ContentOf(*restored) == ContentOf(*table));
}

// The seed and the values of a table that was made otherwise are those of the file afterwards.
TEST_F(CheckpointTest, TheInitializerComesBack) {
  const TablePtr table = MakeTable(ConfigOf());
  TableConfig other = ConfigOf();
  other.initializer.seed = 99;
  other.initializer.kind = InitializerKind::kConstant;
  other.num_shards = 2;
  const TablePtr restored = MakeTable(other);
  ASSERT_TRUE(IsOk(Restore({Saved(*table)}, restored.get())));
  Train({5, -7}, 1, 1, table.get());
  Train({5, -7}, 1, 1, restored.get());
  EXPECT_TRUE(ContentOf(*restored) == ContentOf(*table));
  EXPECT_EQ(restored->initializer().seed, 17u);
  // A second checkpoint has it from the first.
  const TablePtr again = MakeTable(other);
  ASSERT_TRUE(IsOk(Restore({Saved(*restored, "again")}, again.get())));
  EXPECT_EQ(again->initializer().seed, 17u);
}

class Partitions : public CheckpointTest,
                   public ::testing::WithParamInterface<PartitionStrategy> {};
INSTANTIATE_TEST_SUITE_P(Checkpoint, Partitions,
                         ::testing::Values(PartitionStrategy::kHash, PartitionStrategy::kModEv));

TEST_P(Partitions, AnyNumberIntoAnyOther) {
  Random random(3);
  TableConfig config = ConfigOf();
  config.admission = {AdmissionKind::kCounter, 3, 0, 0};
  const std::vector<int64_t> keys = RandomKeys(3000, &random);
  for (int64_t from = 1; from <= 3; ++from) {
    Content want;
    std::vector<std::string> paths;
    for (int64_t p = 0; p < from; ++p) {
      const TablePtr table = MakeTable(config);
      // Not all partitions have met the same optimizers yet.
      AddSlots({kAccumulator, kNorm}, table.get());
      std::vector<int64_t> mine, admitted;
      for (const int64_t key : keys) {
        if (PartitionOfKey(GetParam(), key, from) == p) mine.push_back(key);
      }
      for (const int64_t key : mine) {
        if (key % 2 == 0) admitted.push_back(key);
      }
      Train(mine, 1, 5, table.get());
      Train(admitted, 4, 6, table.get());
      Scramble(admitted, &random, table.get());
      table->set_step(100 + p);
      Collect(*table, &want);
      paths.push_back(Saved(*table, "part" + std::to_string(p) + "of" + std::to_string(from)));
    }
    ASSERT_EQ(want.rows.size() + want.filtered.size(), keys.size());
    for (int64_t to = 1; to <= 3; ++to) {
      Content got;
      for (int64_t p = 0; p < to; ++p) {
        const TablePtr table = MakeTable(config);
        ASSERT_TRUE(IsOk(Restore(paths, table.get(), {GetParam(), p, to})));
        Collect(*table, &got);
        for (const auto& [key, row] : ContentOf(*table).rows) {
          EXPECT_EQ(PartitionOfKey(GetParam(), key, to), p) << key;
        }
        EXPECT_EQ(table->step(), 100 + from - 1);
      }
      EXPECT_TRUE(got == want) << from << " into " << to;
    }
  }
}

TEST_F(CheckpointTest, FilteredKeysAreJudgedAnew) {
  TableConfig config = ConfigOf();
  config.admission = {AdmissionKind::kCounter, 10, 0, 0};
  const TablePtr table = MakeTable(config);
  Train({1, 2}, 4, 1, table.get());
  const std::string path = Saved(*table);
  config.admission.min_frequency = 3;
  const TablePtr restored = MakeTable(config);
  ASSERT_TRUE(IsOk(Restore({path}, restored.get())));
  EXPECT_EQ(restored->size(), 0);
  Train({1}, 1, 2, restored.get());
  EXPECT_EQ(restored->size(), 1);
  EXPECT_EQ(restored->Statistics().filtered, 1);

  config.admission.kind = AdmissionKind::kAll;
  const TablePtr open = MakeTable(config);
  std::string warning;
  ASSERT_TRUE(IsOk(Restore({path}, open.get(), {}, &warning)));
  EXPECT_NE(warning.find("counts of keys that were not admitted are left out"), std::string::npos)
      << warning;
  EXPECT_NE(warning.find(path), std::string::npos) << warning;
}

TEST_F(CheckpointTest, BloomCountersComeBackWhereTheyFit) {
  TableConfig config = ConfigOf();
  config.admission = {AdmissionKind::kBloom, 5, 100000, 7};
  const TablePtr table = MakeTable(config);
  Train({1, 2, 3}, 4, 1, table.get());
  const std::string path = Saved(*table);
  const auto size_after_one_more = [&](const TableConfig& other, const PartitionFilter& filter,
                                       std::string* warning) {
    const TablePtr restored = MakeTable(other);
    EXPECT_TRUE(IsOk(Restore({path}, restored.get(), filter, warning)));
    Train({1, 2, 3}, 1, 2, restored.get());
    return restored->size();
  };
  std::string warning;
  EXPECT_EQ(size_after_one_more(config, {}, &warning), 3);
  EXPECT_EQ(warning, "");
  TableConfig lower = config;
  lower.admission.min_frequency = 3;
  EXPECT_EQ(size_after_one_more(lower, {}, &warning), 3);
  EXPECT_EQ(warning, "");

  std::vector<TableConfig> others(5, config);
  others[0].admission.bloom_counters = 200000;
  others[1].admission.bloom_hashes = 6;
  others[2].admission.min_frequency = 256;
  others[3].initializer.seed = 18;
  others[4].num_shards = 8;
  for (const TableConfig& other : others) {
    EXPECT_EQ(size_after_one_more(other, {}, &warning), 0);
    EXPECT_NE(warning.find("Bloom filter are left out"), std::string::npos) << warning;
  }
  EXPECT_EQ(size_after_one_more(config, {PartitionStrategy::kHash, 0, 2}, &warning), 0);
  EXPECT_NE(warning.find("Bloom filter are left out"), std::string::npos) << warning;
}

TEST_F(CheckpointTest, ALargeBloomFilterComesBack) {
  TableConfig config = ConfigOf();
  config.admission = {AdmissionKind::kBloom, 300, 20000000, 3};  // two blocks a shard
  const TablePtr table = MakeTable(config);
  Random random(8);
  Train(RandomKeys(50000, &random), 7, 1, table.get());
  std::vector<char> want, got;
  ASSERT_TRUE(IsOk(table->CopyBloom(&want)));
  ASSERT_GT(want.size(), 2u * 4 * (4 << 20));
  const TablePtr restored = MakeTable(config);
  std::string warning;
  ASSERT_TRUE(IsOk(Restore({Saved(*table)}, restored.get(), {}, &warning)));
  EXPECT_EQ(warning, "");
  ASSERT_TRUE(IsOk(restored->CopyBloom(&got)));
  EXPECT_TRUE(got == want);
}

TEST_F(CheckpointTest, SlotsOfTheFileAndOfNewerOptimizers) {
  Random random(4);
  const TablePtr first = MakeTable(ConfigOf());
  AddSlots({kNorm, kAccumulator}, first.get());
  Train({1, 2}, 1, 1, first.get());
  Scramble({1, 2}, &random, first.get());
  const TablePtr second = MakeTable(ConfigOf());
  AddSlots({kMomentum, kAccumulator}, second.get());
  Train({3, 4}, 1, 1, second.get());
  Scramble({3, 4}, &random, second.get());
  Content want = ContentOf(*first);
  Collect(*second, &want);

  const TablePtr restored = MakeTable(ConfigOf());
  ASSERT_TRUE(IsOk(Restore({Saved(*first, "a"), Saved(*second, "b")}, restored.get())));
  Content got = ContentOf(*restored);
  // What a file does not have begins with its first value.
  for (const int64_t key : {1, 2}) {
    EXPECT_EQ(FloatsOf(got.rows[key].at(kMomentum.name)), std::vector<float>(3, 0.0f));
    got.rows[key].erase(kMomentum.name);
  }
  for (const int64_t key : {3, 4}) {
    EXPECT_EQ(FloatsOf(got.rows[key].at(kNorm.name)), std::vector<float>(1, 0.25f));
    got.rows[key].erase(kNorm.name);
  }
  EXPECT_TRUE(got == want);

  const TablePtr third = MakeTable(ConfigOf());
  AddSlots({{kNorm.name, 2, 0}}, third.get());
  Train({9}, 1, 1, third.get());
  const Content before = ContentOf(*restored);
  EXPECT_TRUE(IsInvalid(Restore({Path("a"), Saved(*third, "c")}, restored.get()),
                        {"RowWise/norm", "width 2", "and 1", Path("c").c_str()}));
  EXPECT_TRUE(ContentOf(*restored) == before);
}

// As of a table to which an optimizer added a slot while it was saved.
TEST_F(CheckpointTest, SlotsThatCameBetweenTwoShards) {
  const auto row = [](int64_t key, std::vector<float> numbers) {
    const RowHeader header = {key, 1, 2};
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
    numbers.resize((numbers.size() + 1) / 2 * 2);
    return bytes.append(reinterpret_cast<const char*>(numbers.data()),
                        numbers.size() * sizeof(float));
  };
  TableHeader header;
  header.dim = 2;
  const std::pair<BlockType, std::string> blocks[] = {
      {BlockType::kTable, EncodeTable(header)},
      {BlockType::kRows, row(1, {10, 11})},
      {BlockType::kSlots, EncodeSlots({{"a", 2, 5}})},
      {BlockType::kRows, row(2, {20, 21, 22, 23}) + row(3, {30, 31, 32, 33})},
      {BlockType::kSlots, EncodeSlots({{"a", 2, 5}, {"b", 1, 6}})},
      {BlockType::kRows, row(4, {40, 41, 42, 43, 44})},
      {BlockType::kFooter, EncodeTotals({4, 0, 0, 0})}};
  BlockWriter writer;
  ASSERT_TRUE(IsOk(writer.Open(Path("table"))));
  for (const auto& [type, payload] : blocks) {
    ASSERT_TRUE(IsOk(writer.Write(type, {payload.data(), static_cast<int64_t>(payload.size())})));
  }
  ASSERT_TRUE(IsOk(writer.Place()));
  const TablePtr table = MakeTable(ConfigOf(2));
  ASSERT_TRUE(IsOk(Restore({Path("table")}, table.get())));
  Content content = ContentOf(*table);
  const auto floats = [&](int64_t key, const char* part) {
    return FloatsOf(content.rows.at(key).at(part));
  };
  using Floats = std::vector<float>;
  EXPECT_EQ(floats(1, "value"), (Floats{10, 11}));
  EXPECT_EQ(floats(1, "a"), (Floats{5, 5}));
  EXPECT_EQ(floats(1, "b"), (Floats{6}));
  EXPECT_EQ(floats(3, "value"), (Floats{30, 31}));
  EXPECT_EQ(floats(3, "a"), (Floats{32, 33}));
  EXPECT_EQ(floats(3, "b"), (Floats{6}));
  EXPECT_EQ(floats(4, "a"), (Floats{42, 43}));
  EXPECT_EQ(floats(4, "b"), (Floats{44}));
}

// An optimizer may add slots, and another restore take them away, while one is on its way.
TEST_F(CheckpointTest, RowsBringTheFirstSlotsOfTheTableOnly) {
  const TablePtr table = MakeTable(ConfigOf(1));
  AddSlots({{"a", 1, 5}, {"b", 1, 6}}, table.get());
  const int64_t keys[] = {7, 8};
  const float values[] = {1, 2}, slots[] = {3, 4};
  EmbeddingTable::Content content;
  content.keys = {keys, 2};
  content.values = reinterpret_cast<const char*>(values);
  content.slots = reinterpret_cast<const char*>(slots);
  content.slot_width = 1;
  ASSERT_TRUE(IsOk(table->Upsert(SerialExec(), content)));
  Content got = ContentOf(*table);
  EXPECT_EQ(FloatsOf(got.rows[8].at("a")), std::vector<float>{4});
  EXPECT_EQ(FloatsOf(got.rows[8].at("b")), std::vector<float>{6});
  content.slot_width = 3;
  EXPECT_TRUE(IsInvalid(table->Upsert(SerialExec(), content), {"3 numbers", "table has 2"}));
}

}  // namespace
}  // namespace fused_embedding
