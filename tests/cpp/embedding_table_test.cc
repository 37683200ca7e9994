#include "tf_ops/core/table/embedding_table.h"

#include <functional>

#include "tests/cpp/table_testing.h"
#include "tf_ops/core/base/hash.h"

namespace fused_embedding {
namespace {

using Floats = std::vector<float>;

TEST(EmbeddingTableTest, EveryInt64IsAKey) {
  const auto table = MakeTable(TestConfig());
  const Ints keys = {0, -1, kInt64Min, kInt64Max, 1, 1 - kInt64Max};
  EXPECT_TRUE(IsOk(LookUp(table.get(), keys).status));
  EXPECT_EQ(table->size(), 6);
  const Lookup again = LookUp(table.get(), keys, {{}, 9, false});
  for (const int64_t handle : again.handles) EXPECT_GE(handle, 0);
  EXPECT_EQ(again.values, Floats(12, 0.5f));
}

TEST(EmbeddingTableTest, ALookupCountsAndInserts) {
  const auto table = MakeTable(TestConfig());
  EXPECT_TRUE(IsOk(LookUp(table.get(), {7, 8}, {{3, 0}, 10}).status));
  EXPECT_TRUE(IsOk(LookUp(table.get(), {8, 7}, {{}, 11}).status));
  const TableContents contents = ContentsOf(*table);
  EXPECT_EQ(HeaderOf(contents.rows.at(7)).frequency, 4u);
  EXPECT_EQ(HeaderOf(contents.rows.at(8)).frequency, 1u);
  EXPECT_EQ(HeaderOf(contents.rows.at(7)).version, 11u);
  const TableStatistics statistics = table->Statistics();
  EXPECT_EQ(statistics.size, 2);
  EXPECT_EQ(statistics.hits, 2);
  EXPECT_EQ(statistics.misses, 2);
  EXPECT_EQ(statistics.inserts, 2);
  EXPECT_EQ(statistics.index_probes, 4);
}

TEST(EmbeddingTableTest, FindChangesNothing) {
  const auto table = MakeTable(TestConfig());
  EXPECT_TRUE(IsOk(LookUp(table.get(), {1}, {{5}, 3}).status));
  const TableContents before = ContentsOf(*table);
  const Lookup found = LookUp(table.get(), {1, 2}, {{}, 4, false});
  EXPECT_GE(found.handles[0], 0);
  EXPECT_EQ(found.handles[1], -1);
  EXPECT_EQ(found.values, Floats(4, 0.5f));
  EXPECT_TRUE(ContentsOf(*table) == before);
}

TEST(EmbeddingTableTest, NegativeCountsAreRefused) {
  const auto table = MakeTable(TestConfig());
  EXPECT_TRUE(IsInvalid(LookUp(table.get(), {1, 2}, {{1, -3}}).status, {"counts[1] = -3"}));
  EXPECT_TRUE(IsInvalid(LookUp(table.get(), {1, 2}, {{1}}).status, {"counts", "2 keys", "got 1"}));
  EXPECT_EQ(table->size(), 0);
}

TEST(EmbeddingTableTest, HandlesLeadToTheRowWithoutASearch) {
  const auto table = MakeTable(TestConfig());
  const Ints keys = {5, 6, 7, 8};
  const Ints handles = LookUp(table.get(), keys).handles;
  const int64_t probes = table->Statistics().index_probes;
  EXPECT_EQ(probes, 4);
  const auto add_one = [](const RowLayout& layout, const RowBatch& batch) {
    for (int64_t i = 0; i < batch.n; ++i) {
      *reinterpret_cast<float*>(batch.rows[i] + layout.value_offset()) += 1.0f;
    }
  };
  EXPECT_TRUE(IsOk(table->ForEachRow(SerialExec(), View(keys), View(handles), add_one)));
  EXPECT_EQ(table->Statistics().index_probes, probes);
  EXPECT_TRUE(IsOk(table->ForEachRow(SerialExec(), View(keys), {}, add_one)));
  EXPECT_EQ(table->Statistics().index_probes, probes + 4);
  EXPECT_EQ(LookUp(table.get(), keys, {{}, 1, false}).values,
            Floats({2.5f, 0.5f, 2.5f, 0.5f, 2.5f, 0.5f, 2.5f, 0.5f}));
}

// Rows of `keys`, null where there is none, by these handles.
std::vector<bool> RowsOf(EmbeddingTable* table, const Ints& keys, const Ints& handles) {
  std::vector<bool> has_row(keys.size());
  EXPECT_TRUE(IsOk(table->ForEachRow(SerialExec(), View(keys), View(handles),
                                     [&](const RowLayout& /*layout*/, const RowBatch& batch) {
                                       for (int64_t i = 0; i < batch.n; ++i) {
                                         const size_t position =
                                             static_cast<size_t>(batch.positions[i]);
                                         has_row[position] = batch.rows[i] != nullptr;
                                         if (batch.rows[i] == nullptr) continue;
                                         RowHeader header;
                                         std::memcpy(&header, batch.rows[i], sizeof(header));
                                         EXPECT_EQ(header.key, keys[position]);
                                       }
                                     })));
  return has_row;
}

TEST(EmbeddingTableTest, HandlesOfOtherRowsAreNoticed) {
  TableConfig config = TestConfig();
  config.num_shards = 1;
  const auto table = MakeTable(config);
  const Ints handles = LookUp(table.get(), {1, 2, 3}).handles;
  EXPECT_EQ(EraseKeys(table.get(), {2}), 1);
  EXPECT_EQ(RowsOf(table.get(), {1, 2, 3}, handles), (std::vector<bool>{true, false, true}));
  // What a dead row holds in the place of its key is no key.
  EXPECT_EQ(RowsOf(table.get(), {-1}, {handles[1]}), std::vector<bool>{false});
  // Another key takes the row.
  EXPECT_EQ(LookUp(table.get(), {4}).handles[0], handles[1]);
  EXPECT_EQ(RowsOf(table.get(), {2, 4}, {handles[1], handles[1]}),
            (std::vector<bool>{false, true}));
  // Handles that name nothing, or the row of another key: the key is searched for.
  for (const int64_t handle : {kInt64Min, kInt64Max, int64_t{-1}, int64_t{1} << 40, int64_t{77},
                               handles[2], int64_t{0xffffffff}}) {
    EXPECT_EQ(RowsOf(table.get(), {1, 9}, {handle, handle}), (std::vector<bool>{true, false}))
        << handle;
  }
  const Ints too_few = {0};
  EXPECT_TRUE(IsInvalid(table->ForEachRow(SerialExec(), View({1, 2}), View(too_few),
                                          [](const RowLayout&, const RowBatch&) {}),
                        {"handles", "2 keys"}));
}

TEST(EmbeddingTableTest, ACounterFilterAdmitsAfterItsOccurrences) {
  TableConfig config = TestConfig();
  config.admission = {AdmissionKind::kCounter, 3};
  const auto table = MakeTable(config);
  Lookup lookup = LookUp(table.get(), {1, 2, 3}, {{2, 3, 0}, 5});
  EXPECT_EQ(lookup.values, Floats({-1.0f, -1.0f, 0.5f, 0.5f, -1.0f, -1.0f}));
  EXPECT_EQ(lookup.handles[0], -1);
  EXPECT_EQ(table->Statistics().filtered, 1) << "a key without an occurrence is not counted";
  EXPECT_EQ(LookUp(table.get(), {1}, {{}, 5, false}).values, Floats({-1.0f, -1.0f}));
  lookup = LookUp(table.get(), {1}, {{1}, 6});
  EXPECT_EQ(lookup.values, Floats({0.5f, 0.5f}));
  const TableContents contents = ContentsOf(*table);
  EXPECT_EQ(HeaderOf(contents.rows.at(1)).frequency, 3u);
  EXPECT_EQ(HeaderOf(contents.rows.at(2)).frequency, 3u);
  EXPECT_TRUE(contents.filtered.empty());
  EXPECT_EQ(table->Statistics().not_admitted, 2);
  EXPECT_EQ(table->Statistics().inserts, 2);
}

TEST(EmbeddingTableTest, AKeyThatIsInABatchTwiceIsCountedTwice) {
  TableConfig config = TestConfig();
  config.admission = {AdmissionKind::kCounter, 2};
  const auto table = MakeTable(config);
  const Lookup lookup = LookUp(table.get(), {1, 1, 1}, {{}, 5});
  EXPECT_EQ(lookup.values, Floats({-1.0f, -1.0f, 0.5f, 0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(HeaderOf(ContentsOf(*table).rows.at(1)).frequency, 3u);
  EXPECT_EQ(table->size(), 1);
}

TEST(EmbeddingTableTest, ABloomFilterAdmitsAfterItsOccurrences) {
  TableConfig config = TestConfig();
  config.admission = {AdmissionKind::kBloom, 3, 1 << 16, 4};
  const auto table = MakeTable(config);
  Ints keys(500);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  EXPECT_TRUE(IsOk(LookUp(table.get(), keys).status));
  EXPECT_LT(table->size(), 5) << "only where counters collide";
  EXPECT_TRUE(IsOk(LookUp(table.get(), keys, {std::vector<int32_t>(500, 2)}).status));
  EXPECT_EQ(table->size(), 500);

  std::vector<char> bytes;
  EXPECT_TRUE(IsOk(table->CopyBloom(&bytes)));
  EXPECT_GE(bytes.size(), size_t{1} << 16);
  EXPECT_GE(table->Statistics().memory_bytes, static_cast<int64_t>(bytes.size()));
  const auto restored = MakeTable(config);
  EXPECT_TRUE(IsOk(restored->RestoreBloom({bytes.data(), static_cast<int64_t>(bytes.size())})));
  EXPECT_TRUE(IsOk(LookUp(restored.get(), keys, {std::vector<int32_t>(500, 0)}).status));
  EXPECT_EQ(restored->size(), 500);
  EXPECT_TRUE(IsInvalid(restored->RestoreBloom({bytes.data(), 64}), {"64", "same filter"}));
  EXPECT_TRUE(IsOk(restored->Clear()));
  EXPECT_TRUE(IsOk(LookUp(restored.get(), keys).status));
  EXPECT_LT(restored->size(), 5) << "the filter was not cleared";
}

TEST(EmbeddingTableTest, FrequenciesAndVersionsSaturate) {
  const auto table = MakeTable(TestConfig());
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(IsOk(LookUp(table.get(), {1}, {{kMax}, kInt64Max}).status));
  }
  const RowHeader header = HeaderOf(ContentsOf(*table).rows.at(1));
  EXPECT_EQ(header.frequency, 0xffffffffu);
  EXPECT_EQ(header.version, 0xfffffffeu);
  EXPECT_EQ(table->size(), 1) << "a version must not look like that of a dead row";
}

// --- Full tables ---

TableConfig FullConfig(CheckMode check_mode) {
  TableConfig config = TestConfig();
  config.max_capacity = 3;
  config.check_mode = check_mode;
  return config;
}

TEST(EmbeddingTableTest, AFullTableIsAnErrorAndUnchanged) {
  TableConfig config = FullConfig(CheckMode::kError);
  config.admission = {AdmissionKind::kCounter, 2};
  const auto table = MakeTable(config);
  EXPECT_TRUE(IsOk(LookUp(table.get(), {1, 2, 3}, {{2, 2, 1}, 1}).status));
  const TableContents before = ContentsOf(*table);
  // 1 is there, 3 and 4 would be admitted, 5 not: one too many.
  const Lookup lookup = LookUp(table.get(), {1, 3, 4, 5}, {{2, 2, 2, 1}, 2});
  EXPECT_TRUE(Fails(lookup.status, StatusCode::kResourceExhausted,
                    {"1 keys", "max_capacity = 3", "check_mode"}));
  EXPECT_TRUE(ContentsOf(*table) == before);
  EXPECT_TRUE(IsOk(LookUp(table.get(), {1, 3, 5}, {{2, 2, 1}, 2}).status));
  EXPECT_EQ(table->size(), 3);
  const Status upsert = UpsertFloats(table.get(), {1, 9}, Floats(4));
  EXPECT_TRUE(Fails(upsert, StatusCode::kResourceExhausted, {"1 keys"}));
  EXPECT_NE(LookUp(table.get(), {1}, {{}, 2, false}).values[0], 0.0f);
  // A key that is missing twice wants one row.
  EXPECT_EQ(EraseKeys(table.get(), {1}), 1);
  EXPECT_TRUE(IsOk(LookUp(table.get(), {8, 8, 8}, {{}, 3}).status));
}

TEST(EmbeddingTableTest, AFullTableWithABloomFilterIsUnchangedToo) {
  TableConfig config = FullConfig(CheckMode::kError);
  config.admission = {AdmissionKind::kBloom, 2, 1024, 3};
  const auto table = MakeTable(config);
  EXPECT_TRUE(IsOk(LookUp(table.get(), {1, 2}, {{2, 2}, 1}).status));
  std::vector<char> before, after;
  EXPECT_TRUE(IsOk(table->CopyBloom(&before)));
  EXPECT_FALSE(LookUp(table.get(), {3, 4, 5}, {{2, 2, 1}, 2}).status.ok());
  EXPECT_TRUE(IsOk(table->CopyBloom(&after)));
  EXPECT_EQ(before, after);
  EXPECT_TRUE(IsOk(LookUp(table.get(), {3, 5}, {{2, 1}, 2}).status));
  EXPECT_EQ(table->size(), 3);
}

TEST(EmbeddingTableTest, ABatchLargerThanATableThatEvictsIsAnError) {
  TableConfig config = FullConfig(CheckMode::kError);
  config.eviction = EvictionPolicy::kLru;
  const auto table = MakeTable(config);
  EXPECT_TRUE(IsOk(LookUp(table.get(), {1, 2}, {{}, 1}).status));
  // Five keys, three of them distinct.
  EXPECT_TRUE(IsOk(LookUp(table.get(), {1, 1, 1, 2, 3}, {{}, 2}).status));
  const TableContents before = ContentsOf(*table);
  EXPECT_TRUE(Fails(LookUp(table.get(), {1, 4, 5, 6}, {{}, 3}).status,
                    StatusCode::kResourceExhausted, {"1 keys"}));
  EXPECT_TRUE(ContentsOf(*table) == before);
  EXPECT_EQ(table->Statistics().refusals, 1);
  EXPECT_TRUE(IsOk(LookUp(table.get(), {4, 5, 6}, {{}, 3}).status));
  EXPECT_EQ(table->Statistics().evictions, 3);
}

TEST(EmbeddingTableTest, AFullTableReadsZerosWhereItIsNotAnError) {
  const auto table = MakeTable(FullConfig(CheckMode::kWarning));
  const Lookup lookup = LookUp(table.get(), {1, 2, 3, 4, 5});
  EXPECT_TRUE(IsOk(lookup.status));
  EXPECT_EQ(lookup.num_refused, 2);
  EXPECT_EQ(lookup.values, Floats({0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0, 0, 0, 0}));
  EXPECT_EQ(lookup.handles[4], -1);
  EXPECT_EQ(table->Statistics().refusals, 2);
  EXPECT_EQ(table->size(), 3);
  EXPECT_TRUE(IsOk(UpsertFloats(table.get(), {1, 8}, {7, 7, 8, 8})));
  EXPECT_EQ(LookUp(table.get(), {1, 8}, {{}, 1, false}).values, Floats({7, 7, 0.5f, 0.5f}));
}

TEST(EmbeddingTableTest, CapacityIsSharedOutExactly) {
  TableConfig config = TestConfig();
  config.max_capacity = 1003;
  config.num_shards = 8;
  config.check_mode = CheckMode::kIgnore;
  const auto table = MakeTable(config);
  Ints keys(20000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  EXPECT_TRUE(IsOk(LookUp(table.get(), keys).status));
  EXPECT_EQ(table->size(), 1003);
}

// --- Content ---

TEST(EmbeddingTableTest, SlotsAreAddedToRowsThatAreThere) {
  const auto table = MakeTable(TestConfig());
  Ints keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  const Ints handles = LookUp(table.get(), keys).handles;
  const Slot slot{"Adagrad/accumulator", 2, 0.1};
  EXPECT_EQ(table->SlotOffset(slot.name), -1);
  EXPECT_TRUE(IsOk(table->EnsureSlots({&slot, 1})));
  EXPECT_TRUE(IsOk(table->EnsureSlots({&slot, 1})));
  EXPECT_EQ(table->SlotOffset(slot.name), 24);
  EXPECT_EQ(table->layout().row_bytes(), 32);
  const Slot wider{slot.name, 3, 0.1};
  EXPECT_TRUE(IsInvalid(table->EnsureSlots({&wider, 1}), {slot.name.c_str(), "2", "3", "name"}));
  const Slot empty{"empty", 0, 0.1};
  EXPECT_TRUE(IsInvalid(table->EnsureSlots({&empty, 1}), {"empty", "width"}));
  EXPECT_TRUE(IsOk(LookUp(table.get(), {5000}).status));  // a new row
  int64_t num_probes = table->Statistics().index_probes;
  EXPECT_EQ(RowsOf(table.get(), keys, handles), std::vector<bool>(1000, true));
  EXPECT_EQ(table->Statistics().index_probes, num_probes) << "handles stay valid";
  for (const auto& [key, row] : ContentsOf(*table).rows) {
    float slots[2];
    std::memcpy(slots, row.data() + 24, sizeof(slots));
    ASSERT_EQ(slots[0], 0.1f) << "key " << key;
    ASSERT_EQ(slots[1], 0.1f) << "key " << key;
  }
}

TEST(EmbeddingTableTest, UpsertLeavesWhatIsNotGiven) {
  const auto table = MakeTable(TestConfig());
  EXPECT_TRUE(IsOk(LookUp(table.get(), {1}, {{4}, 9}).status));
  table->set_step(20);
  EXPECT_TRUE(IsOk(UpsertFloats(table.get(), {1, 2}, {1, 2, 3, 4})));
  const TableContents contents = ContentsOf(*table);
  EXPECT_EQ(HeaderOf(contents.rows.at(1)).frequency, 4u);
  EXPECT_EQ(HeaderOf(contents.rows.at(1)).version, 9u);
  EXPECT_EQ(HeaderOf(contents.rows.at(2)).frequency, 0u);
  EXPECT_EQ(HeaderOf(contents.rows.at(2)).version, 20u);
  EXPECT_EQ(LookUp(table.get(), {1, 2}, {{}, 1, false}).values, Floats({1, 2, 3, 4}));
  const Ints keys = {1}, negative = {-1};
  const Floats values = {1, 2};
  EmbeddingTable::Content content;
  content.keys = View(keys);
  EXPECT_TRUE(IsInvalid(table->Upsert(SerialExec(), content), {"values"}));
  content.values = reinterpret_cast<const char*>(values.data());
  content.versions = View(negative);
  EXPECT_TRUE(IsInvalid(table->Upsert(SerialExec(), content), {"versions[0] = -1"}));
  content.versions = {};
  content.frequencies = View(negative);
  EXPECT_TRUE(IsInvalid(table->Upsert(SerialExec(), content), {"frequencies[0] = -1"}));
}

TEST(EmbeddingTableTest, ClearedItIsAsNew) {
  const auto table = MakeTable(TestConfig());
  const Slot slot{"slot", 2, 0.0};
  EXPECT_TRUE(IsOk(table->EnsureSlots({&slot, 1})));
  Ints keys(30000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  EXPECT_TRUE(IsOk(LookUp(table.get(), keys).status));
  const int64_t full_bytes = table->Statistics().memory_bytes;
  EXPECT_TRUE(IsOk(table->Clear()));
  EXPECT_EQ(table->size(), 0);
  EXPECT_LT(table->Statistics().memory_bytes, full_bytes / 10);
  EXPECT_TRUE(table->layout().slots.empty());
  EXPECT_TRUE(IsOk(LookUp(table.get(), keys).status));
  EXPECT_EQ(table->size(), 30000);
  EXPECT_TRUE(IsOk(table->EnsureSlots({&slot, 1})));
}

TEST(EmbeddingTableTest, TheInitializerMayBeReplaced) {
  const auto table = MakeTable(TestConfig());
  EXPECT_TRUE(IsOk(LookUp(table.get(), {1}).status));
  InitializerConfig initializer;
  initializer.a = 0.25;
  EXPECT_TRUE(IsOk(table->SetInitializer(initializer)));
  EXPECT_EQ(table->initializer().a, 0.25);
  EXPECT_EQ(LookUp(table.get(), {1, 2}).values, Floats({0.5f, 0.5f, 0.25f, 0.25f}));
  initializer.a = std::nan("");
  EXPECT_FALSE(table->SetInitializer(initializer).ok());
}

// The keys of one of three partitions, which are chosen by a hash as well.
TEST(EmbeddingTableTest, ShardsOfAPartitionAreEven) {
  const auto table = MakeTable(TestConfig());
  Ints keys;
  for (int64_t key = 0; keys.size() < 64000; ++key) {
    if (Mix64(static_cast<uint64_t>(key)) % 3 == 1) keys.push_back(key);
  }
  EXPECT_TRUE(IsOk(LookUp(table.get(), keys).status));
  ASSERT_EQ(table->num_shards(), 16);
  for (int64_t shard = 0; shard < 16; ++shard) {
    RowLayout layout;
    std::vector<char> rows;
    FilteredKeys filtered;
    EXPECT_TRUE(IsOk(table->CopyShard(shard, &layout, &rows, &filtered)));
    // Six standard deviations.
    EXPECT_NEAR(static_cast<double>(rows.size()) / static_cast<double>(layout.row_bytes()), 4000,
                6 * 61);
  }
}

TEST(EmbeddingTableTest, MetadataOfKeys) {
  const auto table = MakeTable(TestConfig());
  EXPECT_TRUE(IsOk(LookUp(table.get(), {1}, {{4}, 9}).status));
  const Ints keys = {2, 1};
  Array<int64_t> frequencies(2), versions(2);
  EXPECT_TRUE(IsOk(table->Metadata(SerialExec(), View(keys), frequencies.span(), versions.span())));
  EXPECT_EQ(frequencies.values(), Ints({0, 4}));
  EXPECT_EQ(versions.values(), Ints({-1, 9}));
}

template <typename T>
class EmbeddingTableTypeTest : public ::testing::Test {};
TYPED_TEST_SUITE(EmbeddingTableTypeTest, ValueTypes);

// Odd dims: slots are aligned behind the value all the same, and the gap is zero.
TYPED_TEST(EmbeddingTableTypeTest, ValuesSlotsAndNorms) {
  using T = TypeParam;
  TableConfig config = TestConfig();
  config.layout.value_type = kValueTypeOf<T>;
  config.layout.dim = 3;
  config.admission = {AdmissionKind::kCounter, 2};
  config.no_permission_value = -0.25;
  const auto table = MakeTable(config);
  const Slot slot{"slot", 1, 1.5};
  ASSERT_TRUE(IsOk(table->EnsureSlots({&slot, 1})));
  const Ints keys = {1, 2};
  const Array<int32_t> counts = {2, 1};
  Array<T> values(6);
  LookupOutput out;
  out.values = reinterpret_cast<char*>(values.data());
  ASSERT_TRUE(IsOk(table->FindOrInsert(SerialExec(), {View(keys), counts.view(), 1}, &out)));
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(Load(values[i]), i < 3 ? 0.5 : -0.25);

  RowLayout layout;
  std::vector<char> row;
  FilteredKeys filtered;
  for (int64_t shard = 0; shard < table->num_shards(); ++shard) {
    ASSERT_TRUE(IsOk(table->CopyShard(shard, &layout, &row, &filtered)));
  }
  ASSERT_EQ(row.size(), layout.row_bytes());
  ComputeType<T> number;
  std::memcpy(&number, row.data() + layout.SlotOffset("slot"), sizeof(number));
  EXPECT_EQ(number, 1.5);
  for (int64_t i = layout.value_offset() + layout.value_bytes(); i < layout.slots_offset(); ++i) {
    EXPECT_EQ(row[static_cast<size_t>(i)], 0);
  }

  // The norm is sqrt(3) / 2 = 0.866.
  int64_t num_expired = -1;
  ASSERT_TRUE(IsOk(table->Expire(SerialExec(), {0, 0, 0.86}, &num_expired)));
  EXPECT_EQ(num_expired, 0);
  ASSERT_TRUE(IsOk(table->Expire(SerialExec(), {0, 0, 0.87}, &num_expired)));
  EXPECT_EQ(num_expired, 1);
  EXPECT_EQ(table->Statistics().expirations, 1);
}

TEST(EmbeddingTableTest, ConfigsThatMakeNoSenseAreRefused) {
  using Change = std::function<void(TableConfig*)>;
  const std::pair<Change, const char*> cases[] = {
      {[](TableConfig* c) { c->layout.dim = 0; }, "embedding_dim"},
      {[](TableConfig* c) { c->layout.dim = kInt64Max; }, "embedding_dim"},
      {[](TableConfig* c) { c->layout.slots.push_back({"slot", 2, 0.0}); }, "without slots"},
      {[](TableConfig* c) { c->admission = {AdmissionKind::kCounter, -1}; }, "min_frequency"},
      {[](TableConfig* c) { c->admission = {AdmissionKind::kBloom, 2, 0, 3}; }, "counter"},
      {[](TableConfig* c) { c->max_capacity = -5; }, "max_capacity"},
      {[](TableConfig* c) { c->eviction = EvictionPolicy::kLru; }, "max_capacity"},
      {[](TableConfig* c) { c->num_shards = 3; }, "power of two"},
      {[](TableConfig* c) { c->num_shards = 512; }, "power of two"},
      {[](TableConfig* c) { c->num_shards = -1; }, "power of two"},
      {[](TableConfig* c) { c->num_shards = 4, c->max_capacity = 3; }, "max_capacity = 3"},
      {[](TableConfig* c) { c->initializer.kind = InitializerKind::kMatrix; }, "matri"},
  };
  for (const auto& [change, part] : cases) {
    TableConfig config = TestConfig();
    change(&config);
    std::unique_ptr<EmbeddingTable> table;
    EXPECT_TRUE(IsInvalid(EmbeddingTable::Create(config, &table), {part})) << part;
    EXPECT_EQ(table, nullptr);
  }
}

TEST(EmbeddingTableTest, SmallTablesUseLittleMemory) {
  const auto table = MakeTable(TestConfig());
  EXPECT_LT(table->Statistics().memory_bytes, 8 << 10);
  EXPECT_TRUE(IsOk(LookUp(table.get(), {1, 2, 3}).status));
  EXPECT_LT(table->Statistics().memory_bytes, 32 << 10);
}

TEST(EmbeddingTableTest, StatisticsHaveTheirNamesInOrder) {
  TableStatistics statistics;
  statistics.size = 1;
  statistics.cold_bytes = 23;
  const auto named = NamedStatistics(statistics);
  ASSERT_EQ(named.size(), 23u);
  EXPECT_STREQ(named.front().first, "size");
  EXPECT_EQ(named.front().second, 1);
  EXPECT_STREQ(named.back().first, "cold_bytes");
  EXPECT_EQ(named.back().second, 23);
  statistics += statistics;
  EXPECT_EQ(statistics.cold_bytes, 46);
}

}  // namespace
}  // namespace fused_embedding
