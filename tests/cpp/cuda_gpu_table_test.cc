#include "tests/cpp/cuda_gpu_table_model.h"
#ifdef FE_CUDA_EMULATION
#include "tests/cpp/table_testing.h"  // nvcc refuses the vectors of the CPU's index
#endif

namespace fused_embedding {
namespace {

using CudaGpuTable = GpuTest;

std::vector<std::string> FirstValues(const GpuTableConfig& config,
                                     const std::vector<int64_t>& keys) {
  const GpuTableModel model(config);
  std::vector<std::string> values;
  for (const int64_t key : keys) values.push_back(model.FirstValue(key));
  return values;
}

const std::vector<int64_t> kOddKeys = {kInt64Min,     -1,    0,      1, kInt64Max,
                                       kInt64Min + 1, 99999, -100000};

TEST_F(CudaGpuTable, EveryInt64IsAKey) {
  const GpuTableConfig config = TestGpuConfig(GpuEviction::kNone, 1);
  const auto table = MakeGpuTable(gpu, config);
  const KeyLists lists = {kOddKeys};
  EXPECT_EQ(Find(gpu, {table.get()}, lists)[0].handles, std::vector<int64_t>(kOddKeys.size(), -1));
  const GpuLookup inserted = FindOrInsert(gpu, {table.get()}, lists, {{}, {}, 5})[0];
  EXPECT_EQ(inserted.values, FirstValues(config, kOddKeys));
  const GpuLookup found = Find(gpu, {table.get()}, lists)[0];
  EXPECT_EQ(found.handles, inserted.handles);
  EXPECT_EQ(found.values, inserted.values);
  EXPECT_EQ(Find(gpu, {table.get()}, {{2}})[0].handles, std::vector<int64_t>{-1});
  const std::vector<bool> erased = Erase(gpu, {table.get()}, {{0, 17, kInt64Min}});
  EXPECT_EQ(erased, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(Export(gpu, *table).size(), kOddKeys.size() - 2);
}

// Of any type and kind, in one batch.
TEST_F(CudaGpuTable, FirstValuesAreTheCpusBits) {
  using Kind = InitializerKind;
  std::vector<std::unique_ptr<GpuTable>> tables;
  std::vector<GpuTable*> pointers;
  KeyLists lists;
  Random random(3);
  for (const ValueType type :
       {ValueType::kFloat, ValueType::kDouble, ValueType::kHalf, ValueType::kBFloat16}) {
    for (const Kind kind : {Kind::kConstant, Kind::kUniform, Kind::kNormal, Kind::kTruncatedNormal,
                            Kind::kDebug, Kind::kMatrix}) {
      GpuTableConfig config;
      config.layout.value_type = type;
      config.layout.dim = RandomInt(&random, 1, 70);
      config.initializer = {kind, -0.3, 0.7, random(), {}};
      // 16 bits round a fifth of these to 1.0078, which is not in the range.
      if (kind == Kind::kUniform) config.initializer.a = 1.0, config.initializer.b = 1.005;
      const Array<char> matrix = RandomBytes(&random, 5 * config.layout.value_bytes());
      if (kind == Kind::kMatrix) config.initializer.matrix = matrix.values();
      config.max_bytes = BytesOfBuckets(config.layout, 4);
      tables.push_back(MakeGpuTable(gpu, config));
      pointers.push_back(tables.back().get());
      lists.push_back(kOddKeys);
      for (int i = 0; i < 50; ++i) lists.back().push_back(static_cast<int64_t>(random()));
    }
  }
  const std::vector<GpuLookup> read = Find(gpu, pointers, lists);
  const std::vector<GpuLookup> inserted = FindOrInsert(gpu, pointers, lists, {});
  for (size_t t = 0; t < pointers.size(); ++t) {
    const std::vector<std::string> want = FirstValues(pointers[t]->config(), lists[t]);
    EXPECT_EQ(read[t].values, want) << "table " << t;
    EXPECT_EQ(inserted[t].values, want) << "table " << t;
    EXPECT_EQ(Find(gpu, pointers, lists)[t].values, want) << "table " << t;
  }
}

TEST_F(CudaGpuTable, EvictsTheLeastScoreAndThenTheLeastKey) {
  for (const GpuEviction eviction : {GpuEviction::kLru, GpuEviction::kLfu, GpuEviction::kGiven}) {
    const GpuTableConfig config = TestGpuConfig(eviction, 1);
    const auto table = MakeGpuTable(gpu, config);
    std::vector<int64_t> keys;
    for (int64_t i = 0; i < kEntries; ++i) keys.push_back(100 - 3 * i);
    GpuUseLists uses;
    // Two of the keys have the least score: 91 and 40.
    for (const int64_t key : keys) {
      const bool is_least = key == 91 || key == 40;
      uses.counts.push_back(is_least && eviction == GpuEviction::kLfu ? 1 : 2);
      uses.scores.push_back(is_least ? 5 : 6);
    }
    uses.step = 3;
    FindOrInsert(gpu, {table.get()}, {keys}, uses);
    if (eviction == GpuEviction::kLru) {
      std::vector<int64_t> used = keys;
      used.erase(std::remove(used.begin(), used.end(), 91), used.end());
      used.erase(std::remove(used.begin(), used.end(), 40), used.end());
      FindOrInsert(gpu, {table.get()}, {used}, {{}, {}, 4});
    }
    const auto next = [&](int64_t key) {
      const GpuUseLists later = {{7}, {9}, 8};
      return KeysOf(FindOrInsert(gpu, {table.get()}, {{key}}, later)[0].evicted);
    };
    EXPECT_EQ(next(1000), std::vector<int64_t>{40});
    EXPECT_EQ(next(1001), std::vector<int64_t>{91});
    EXPECT_EQ(next(1002), std::vector<int64_t>{100 - 3 * (kEntries - 1)});
    EXPECT_EQ(next(1001), std::vector<int64_t>{});
  }
}

// Rows of a batch do not evict each other.
TEST_F(CudaGpuTable, RefusesWhatItsBucketHasNoRoomFor) {
  const GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 1);
  const auto table = MakeGpuTable(gpu, config);
  const std::vector<int64_t> old_keys = KeysOfBucket(config, 0, 0, 10);
  FindOrInsert(gpu, {table.get()}, {old_keys}, {{}, {}, 1});
  std::vector<int64_t> keys = {old_keys[3]};
  for (const int64_t key : KeysOfBucket(config, 0, 100, kEntries + 4)) keys.push_back(key);
  int64_t num_refused = 0;
  const GpuLookup lookup = FindOrInsert(gpu, {table.get()}, {keys}, {{}, {}, 2}, &num_refused)[0];
  EXPECT_EQ(num_refused, 5);
  EXPECT_EQ(lookup.evicted.size(), 9u);
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool is_refused = i >= kEntries;
    EXPECT_EQ(lookup.handles[i] < 0, is_refused) << i;
    EXPECT_EQ(lookup.values[i],
              is_refused ? std::string(12, '\0') : FirstValues(config, {keys[i]})[0]);
  }
}

TEST_F(CudaGpuTable, WithoutEvictionABatchThatDoesNotFitChangesNothing) {
  const GpuTableConfig config = TestGpuConfig(GpuEviction::kNone, 2);
  const auto table = MakeGpuTable(gpu, config);
  FindOrInsert(gpu, {table.get()}, {KeysOfBucket(config, 0, 0, 60)}, {});
  const KeyedGpuRows before = Export(gpu, *table);
  const DeviceKeys keys({table.get()}, {KeysOfBucket(config, 0, 60, 7)});
  GpuInsertPlan plan;
  EXPECT_TRUE(Fails(PlanGpuInsert(gpu, keys.view(), &plan), StatusCode::kResourceExhausted,
                    {"table 0", "3 of the keys", "2 buckets", "max_bytes"}));
  EXPECT_EQ(table->num_buckets(), 2);
  EXPECT_EQ(ByKey(Export(gpu, *table)), ByKey(before));
}

TEST_F(CudaGpuTable, GrowsWithinItsBudget) {
  GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 8);
  config.max_bytes += BytesOfBuckets(config.layout, 8) - 1;  // one byte less than 16 buckets
  for (const int64_t min_buckets : {1, 4}) {
    config.min_buckets = min_buckets;
    const auto table = MakeGpuTable(gpu, config);
    EXPECT_EQ(table->memory_bytes(), BytesOfBuckets(config.layout, min_buckets));
    std::map<int64_t, GpuRow> rows;
    int64_t num_evicted = 0;
    for (uint64_t batch = 0; batch < 20; ++batch) {
      std::vector<int64_t> keys;
      for (uint64_t i = 0; i < 40; ++i) keys.push_back(static_cast<int64_t>(40 * batch + i));
      const int64_t num_buckets = table->num_buckets();
      const DeviceKeys device_keys({table.get()}, {keys});
      const int64_t num_waits = NumWaits();
      GpuInsertPlan plan;
      ASSERT_TRUE(IsOk(PlanGpuInsert(gpu, device_keys.view(), &plan)));
      int64_t num_doublings = 0;
      while (num_buckets << num_doublings < table->num_buckets()) ++num_doublings;
      EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 2 + 2 * num_doublings : 0);
      num_evicted += static_cast<int64_t>(
          FindOrInsert(gpu, {table.get()}, {keys}, {{}, {}, static_cast<int64_t>(batch)})[0]
              .evicted.size());
      EXPECT_LE(table->memory_bytes(), config.max_bytes);
    }
    EXPECT_EQ(table->num_buckets(), 8);
    EXPECT_GT(num_evicted, 250);
    EXPECT_EQ(static_cast<int64_t>(Export(gpu, *table).size()), 800 - num_evicted);
  }
}

// A batch does to a bucket what the bucket's own keys do: no group of lanes depends on another.
TEST_F(CudaGpuTable, BucketsDoNotDependOnEachOther) {
  constexpr int64_t kBuckets = 4;
  GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, kBuckets);
  config.min_buckets = kBuckets;
  const auto together = MakeGpuTable(gpu, config), apart = MakeGpuTable(gpu, config);
  Random random(5);
  for (int64_t step = 0; step < 6; ++step) {
    std::vector<int64_t> keys;
    KeyLists of_buckets(kBuckets);
    for (int64_t i = 0; i < 150; ++i) {
      const uint64_t bucket = random() % kBuckets, number = random() % 100;
      keys.push_back(KeyOfBucket(config, bucket, number));
      of_buckets[bucket].push_back(keys.back());
    }
    FindOrInsert(gpu, {together.get()}, {keys}, {{}, {}, step});
    for (size_t b = kBuckets; b-- > 0;) {
      FindOrInsert(gpu, {apart.get()}, {of_buckets[b]}, {{}, {}, step});
    }
    EXPECT_EQ(Export(gpu, *together), Export(gpu, *apart)) << "step " << step;
  }
  EXPECT_EQ(Export(gpu, *together).size(), static_cast<size_t>(kBuckets * kEntries));
}

// --- Random sequences ---

struct RandomTables {
  std::vector<GpuTableConfig> configs;
  std::vector<std::unique_ptr<GpuTable>> tables;
  std::vector<GpuTable*> pointers;
  std::vector<GpuTableModel> models;

  void Add(const GpuExec& gpu, const GpuTableConfig& config) {
    configs.push_back(config);
    tables.push_back(MakeGpuTable(gpu, config));
    pointers.push_back(tables.back().get());
    models.emplace_back(config);
  }
};

RandomTables MakeRandomTables(const GpuExec& gpu) {
  RandomTables made;
  GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 4);
  made.Add(gpu, config);
  config.eviction = GpuEviction::kLfu;
  config.layout = {ValueType::kHalf, 5, {}};
  config.initializer.kind = InitializerKind::kTruncatedNormal;
  config.max_bytes = BytesOfBuckets(config.layout, 2);
  made.Add(gpu, config);
  config.eviction = GpuEviction::kGiven;
  config.layout = {ValueType::kDouble, 2, {{"m", 2, 0.5}}};
  config.min_buckets = 2;
  config.max_bytes = BytesOfBuckets(config.layout, 4);
  made.Add(gpu, config);
  config.eviction = GpuEviction::kNone;
  config.layout = {ValueType::kBFloat16, 1, {}};
  config.min_buckets = 1;
  config.max_bytes = BytesOfBuckets(config.layout, 64);
  made.Add(gpu, config);
  return made;
}

KeyLists RandomLists(Random* random, size_t num_tables, int64_t max_keys, bool are_distinct) {
  KeyLists lists(num_tables);
  for (std::vector<int64_t>& list : lists) {
    std::set<int64_t> seen;
    const int64_t size = RandomInt(random, 0, max_keys);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t key = RandomInt(random, -300, 300);
      if (seen.insert(key).second || !are_distinct) list.push_back(key);
    }
  }
  return lists;
}

size_t NumKeys(const KeyLists& lists) {
  size_t num_keys = 0;
  for (const std::vector<int64_t>& list : lists) num_keys += list.size();
  return num_keys;
}

void FindOrInsertAtRandom(const GpuExec& gpu, Random* random, const KeyLists& lists, int64_t step,
                          RandomTables* made, std::vector<GpuLookup>* got) {
  GpuUseLists uses;
  uses.step = step;
  const bool has_counts = RandomBool(random);
  for (size_t i = 0; i < NumKeys(lists); ++i) {
    if (has_counts) uses.counts.push_back(static_cast<int32_t>(RandomInt(random, 0, 3)));
    uses.scores.push_back(static_cast<uint64_t>(RandomInt(random, 0, 20)) << 40);
  }
  int64_t num_refused = 0, want_refused = 0;
  *got = FindOrInsert(gpu, made->pointers, lists, uses, &num_refused);
  size_t begin = 0;
  bool is_distinct = true;
  for (size_t t = 0; t < lists.size(); ++t) {
    GpuTableModel& model = made->models[t];
    ASSERT_TRUE(model.Plan(lists[t]));
    EXPECT_EQ(made->tables[t]->num_buckets(), model.num_buckets());
    const int32_t* counts = has_counts ? uses.counts.data() + begin : nullptr;
    EXPECT_EQ((*got)[t].values, model.FindOrInsert(lists[t], counts, uses.scores.data() + begin,
                                                   static_cast<uint32_t>(uses.StepOf(t))));
    EXPECT_EQ(ByKey((*got)[t].evicted), model.evicted());
    is_distinct &= std::set<int64_t>(lists[t].begin(), lists[t].end()).size() == lists[t].size();
    want_refused += model.num_refused();
    begin += lists[t].size();
  }
  EXPECT_TRUE(!is_distinct || num_refused == want_refused) << num_refused;
}

void UpsertAtRandom(const GpuExec& gpu, Random* random, const KeyLists& lists, RandomTables* made) {
  std::vector<KeyedGpuRows> rows(lists.size());
  for (size_t t = 0; t < lists.size(); ++t) {
    for (const int64_t key : lists[t]) {
      GpuRow row;
      row.frequency = static_cast<uint32_t>(RandomInt(random, 0, 30));
      row.version = static_cast<uint32_t>(RandomInt(random, 0, 1000));
      row.score = static_cast<uint64_t>(RandomInt(random, 0, 20)) << 40;
      row.bytes = RandomBytes(random, made->tables[t]->row_bytes()).bytes();
      rows[t].emplace_back(key, row);
    }
  }
  const std::vector<KeyedGpuRows> evicted = Upsert(gpu, made->pointers, rows);
  for (size_t t = 0; t < lists.size(); ++t) {
    ASSERT_TRUE(made->models[t].Plan(lists[t]));
    made->models[t].Upsert(rows[t]);
    EXPECT_EQ(ByKey(evicted[t]), made->models[t].evicted());
  }
}

void EraseAtRandom(const GpuExec& gpu, const KeyLists& lists, RandomTables* made) {
  const std::vector<bool> erased = Erase(gpu, made->pointers, lists);
  size_t i = 0;
  for (size_t t = 0; t < lists.size(); ++t) {
    for (const int64_t key : lists[t]) EXPECT_EQ(erased[i++], made->models[t].Erase(key));
  }
}

void FindAtRandom(const GpuExec& gpu, const KeyLists& lists, const RandomTables& made,
                  std::vector<GpuLookup>* got) {
  *got = Find(gpu, made.pointers, lists);
  for (size_t t = 0; t < lists.size(); ++t) {
    for (size_t i = 0; i < lists[t].size(); ++i) {
      const int64_t key = lists[t][i];
      ASSERT_EQ((*got)[t].values[i], made.models[t].Find(key)) << key;
      ASSERT_EQ((*got)[t].handles[i] >= 0, made.models[t].rows().count(key) > 0);
    }
  }
}

// All that a sequence of calls gave, in the order in which it was given.
struct Trace {
  std::vector<std::vector<GpuLookup>> lookups;
  std::vector<KeyedGpuRows> contents;

  bool operator==(const Trace& other) const {
    return lookups == other.lookups && contents == other.contents;
  }
};

Trace RunRandomSequence(const GpuExec& gpu, int num_steps) {
  Random random(17);
  RandomTables made = MakeRandomTables(gpu);
  Trace trace;
  for (int step = 0; step < num_steps && !::testing::Test::HasFailure(); ++step) {
    const int64_t max_keys = RandomBool(&random, 0.1) ? 150 : 30;
    const KeyLists lists =
        RandomLists(&random, made.tables.size(), max_keys, RandomBool(&random, 0.8));
    std::vector<GpuLookup> got;
    switch (RandomInt(&random, 0, 9)) {
      case 0:
        EraseAtRandom(gpu, lists, &made);
        break;
      case 1:
        UpsertAtRandom(gpu, &random, lists, &made);
        break;
      case 2:
      case 3:
        FindAtRandom(gpu, lists, made, &got);
        break;
      default:
        FindOrInsertAtRandom(gpu, &random, lists, step, &made, &got);
    }
    trace.lookups.push_back(got);
    if (step % 50 != 49) continue;
    for (size_t t = 0; t < made.tables.size(); ++t) {
      trace.contents.push_back(Export(gpu, *made.tables[t]));
      EXPECT_EQ(ByKey(trace.contents.back()), made.models[t].rows()) << "table " << t;
      EXPECT_LE(made.tables[t]->memory_bytes(), made.configs[t].max_bytes);
    }
  }
  return trace;
}

TEST_F(CudaGpuTable, EqualsAMapInAnyOrderOfThreads) {
  const int num_steps = NumCases(400);
  const Trace want = RunRandomSequence(gpu, num_steps);
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}}) {
    ShuffleOrder(seed);
    // Also handles, and the order of rows in their buckets.
    EXPECT_TRUE(RunRandomSequence(gpu, num_steps) == want) << "order " << seed;
  }
}

#ifdef FE_CUDA_EMULATION
// The content of a table on the CPU with the same keys, slots and initializer.
TEST_F(CudaGpuTable, EqualsTheTableOnTheCpuAfterAThousandSteps) {
  const GpuTableConfig config = TestGpuConfig(GpuEviction::kNone, 256);
  const auto table = MakeGpuTable(gpu, config);
  TableConfig cpu_config;
  cpu_config.layout.dim = config.layout.dim;
  cpu_config.initializer = config.initializer;
  const auto cpu_table = MakeTable(cpu_config);
  ASSERT_TRUE(IsOk(cpu_table->EnsureSlots(AsSpan(config.layout.slots))));
  Random random(23);
  const int num_steps = NumCases(1000);
  for (int step = 0; step < num_steps; ++step) {
    std::set<int64_t> distinct;
    for (int64_t i = RandomInt(&random, 0, 60); i > 0; --i) {
      distinct.insert(RandomInt(&random, -3000, 3000));
    }
    const std::vector<int64_t> keys(distinct.begin(), distinct.end());
    if (RandomBool(&random, 0.1)) {
      const std::vector<bool> erased = Erase(gpu, {table.get()}, {keys});
      EXPECT_EQ(EraseKeys(cpu_table.get(), keys), std::count(erased.begin(), erased.end(), true));
      continue;
    }
    LookupArgs args;
    for (size_t i = 0; i < keys.size(); ++i) {
      args.counts.push_back(static_cast<int32_t>(RandomInt(&random, 0, 4)));
    }
    args.step = step;
    const Lookup want = LookUp(cpu_table.get(), keys, args);
    const GpuLookup got = FindOrInsert(gpu, {table.get()}, {keys}, {args.counts, {}, step})[0];
    ASSERT_EQ(got.values.size() * 3, want.values.size());
    for (size_t i = 0; i < got.values.size(); ++i) {
      ASSERT_EQ(std::memcmp(got.values[i].data(), want.values.data() + 3 * i, 12), 0);
    }
  }
  std::map<int64_t, std::string> rows;
  for (const auto& [key, row] : Export(gpu, *table, 16)) {
    std::string bytes(sizeof(RowHeader), '\0');
    const RowHeader header = {key, row.frequency, row.version};
    std::memcpy(bytes.data(), &header, sizeof(header));
    bytes += row.bytes;
    bytes.resize(static_cast<size_t>(cpu_table->layout().row_bytes()));
    rows[key] = bytes;
  }
  EXPECT_GT(rows.size(), 1000u);
  EXPECT_TRUE(rows == ContentsOf(*cpu_table).rows);
}
#endif  // FE_CUDA_EMULATION

}  // namespace
}  // namespace fused_embedding
