// Keys that are counted before they get a row.

#include "tests/cpp/cuda_gpu_table_testing.h"
#include "tf_ops/core/table/gpu/training.cu.h"

namespace fused_embedding {
namespace {

using CudaGpuTableTraining = GpuTest;

constexpr float kFirst = 0.75f, kNotPermitted = -0.25f;

GpuTableConfig TrainedConfig(int64_t min_frequency) {
  GpuTableConfig config;
  config.layout.dim = 2;
  config.initializer.a = kFirst;
  config.max_bytes = BytesOfBuckets(config.layout, 16);
  config.min_frequency = min_frequency;
  config.no_permission_value = kNotPermitted;
  config.max_count_bytes = BytesOfBuckets(config.layout, 4);
  return config;
}

struct Use {
  int64_t frequency, version;

  bool operator==(const Use& other) const {
    return frequency == other.frequency && version == other.version;
  }
};
using Uses = std::map<int64_t, Use>;

// A table that counts keys, as maps.
struct TrainedModel {
  int64_t min_frequency;
  Uses rows, counts;

  void Train(int64_t key, int64_t count, int64_t step) {
    if (const auto row = rows.find(key); row != rows.end()) {
      row->second = {row->second.frequency + count, step};
      return;
    }
    const int64_t frequency = (counts.count(key) > 0 ? counts.at(key).frequency : 0) + count;
    if (frequency >= min_frequency) {
      rows[key] = {frequency, step};
      counts.erase(key);
    } else if (frequency > 0) {
      counts[key] = {frequency, step};
    }
  }
};

Uses UsesOf(const GpuExec& gpu, const GpuTable* table) {
  Uses uses;
  if (table == nullptr) return uses;
  for (const auto& [key, row] : ByKey(Export(gpu, *table))) {
    uses[key] = {row.frequency, row.version};
  }
  return uses;
}

std::string ValueOf(float number) {
  const float value[] = {number, number};
  return {reinterpret_cast<const char*>(value), sizeof(value)};
}

std::vector<int64_t> NumBuckets(const std::vector<GpuTable*>& tables) {
  std::vector<int64_t> num_buckets;
  for (const GpuTable* table : tables) {
    num_buckets.push_back(table->num_buckets());
    num_buckets.push_back(table->counts() == nullptr ? 0 : table->counts()->num_buckets());
  }
  return num_buckets;
}

// Tables that double do it in the same rounds.
int64_t NumRounds(const std::vector<int64_t>& before, const std::vector<int64_t>& after) {
  int64_t num_rounds = 0;
  for (size_t t = 0; t < before.size(); ++t) {
    while (before[t] << num_rounds < after[t]) ++num_rounds;
  }
  return num_rounds;
}

Status Train(const GpuExec& gpu, const std::vector<GpuTable*>& tables, const KeyLists& lists,
             const GpuUseLists& uses, std::vector<GpuLookup>* lookups = nullptr) {
  const DeviceKeys keys(tables, lists);
  const DeviceArray<int32_t> counts(Array<int32_t>::Of(uses.counts));
  const Lookups found(tables, lists);
  const std::vector<int64_t> steps = uses.StepsOf(tables.size());
  const GpuUses of_batch = {counts.view(), {}, AsSpan(steps)};
  GpuTrainingPlan plan;
  const std::vector<int64_t> num_buckets = NumBuckets(tables);
  int64_t num_waits = NumWaits();
  FE_RETURN_IF_ERROR(PlanGpuTraining(gpu, keys.view(), of_batch, &plan));
  const int64_t num_rounds = NumRounds(num_buckets, NumBuckets(tables));
  const int64_t want_waits = plan.insert.order.size() == 0 ? 1 : 2 + 2 * num_rounds;
  EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? want_waits : 0);
  num_waits = NumWaits();
  FE_RETURN_IF_ERROR(RunGpuTraining(gpu, keys.view(), of_batch, plan, {}, found.out()));
  EXPECT_EQ(NumWaits(), num_waits) << "a Run waits";
  if (lookups != nullptr) *lookups = found.ToHost();
  return Status();
}

// Tables that admit at other frequencies, and one that counts nothing.
class TrainedTables {
 public:
  explicit TrainedTables(const GpuExec& gpu) : gpu_(gpu) {
    for (const int64_t min_frequency : {3, 0, 1, 5}) {
      owners_.push_back(MakeGpuTable(gpu, TrainedConfig(min_frequency)));
      tables_.push_back(owners_.back().get());
      models_.push_back({min_frequency, {}, {}});
    }
  }

  void Train(int64_t step, Random* random) {
    KeyLists lists;
    GpuUseLists uses;
    uses.step = step;
    for (TrainedModel& model : models_) {
      lists.push_back(RandomKeys(random));
      for (const int64_t key : lists.back()) {
        uses.counts.push_back(static_cast<int32_t>(RandomInt(random, 0, 2)));
        model.Train(key, uses.counts.back(), uses.StepOf(lists.size() - 1));
      }
    }
    std::vector<GpuLookup> lookups;
    ASSERT_TRUE(IsOk(fused_embedding::Train(gpu_, tables_, lists, uses, &lookups)));
    ExpectValues(lists, lookups);
    ExpectValues(lists, Find(gpu_, tables_, lists));
    ExpectContent();
  }

  void Erase(Random* random) {
    KeyLists lists;
    std::vector<bool> want;
    for (TrainedModel& model : models_) {
      lists.push_back(RandomKeys(random));
      for (const int64_t key : lists.back()) {
        want.push_back(model.rows.erase(key) > 0);
        model.counts.erase(key);
      }
    }
    EXPECT_EQ(fused_embedding::Erase(gpu_, tables_, lists), want);
    ExpectContent();
  }

  void Upsert(Random* random) {
    std::vector<KeyedGpuRows> rows;
    for (size_t t = 0; t < models_.size(); ++t) {
      rows.emplace_back();
      for (const int64_t key : RandomKeys(random)) {
        GpuRow row{7, 8, 0, ValueOf(kFirst)};
        row.bytes.resize(static_cast<size_t>(tables_[t]->row_bytes()));
        rows.back().emplace_back(key, row);
        models_[t].rows[key] = {7, 8};
        models_[t].counts.erase(key);
      }
    }
    fused_embedding::Upsert(gpu_, tables_, rows);
    ExpectContent();
  }

  void Expire(int64_t step) {
    for (size_t t = 0; t < models_.size(); ++t) {
      int64_t want = 0, num_expired = -1;
      for (Uses* uses : {&models_[t].rows, &models_[t].counts}) {
        for (auto use = uses->begin(); use != uses->end();) {
          const bool is_old = step - use->second.version > 1;
          want += is_old && uses == &models_[t].rows;
          use = is_old ? uses->erase(use) : std::next(use);
        }
      }
      ASSERT_TRUE(IsOk(ExpireInGpuTable(gpu_, {step, 1, 0}, tables_[t], &num_expired)));
      EXPECT_EQ(num_expired, want);
    }
    ExpectContent();
  }

 private:
  static std::vector<int64_t> RandomKeys(Random* random) {
    std::vector<int64_t> keys;
    for (int64_t key = -20; key < 20; ++key) {
      if (RandomBool(random)) keys.push_back(key);
    }
    std::shuffle(keys.begin(), keys.end(), *random);
    return keys;
  }

  void ExpectValues(const KeyLists& lists, const std::vector<GpuLookup>& lookups) const {
    for (size_t t = 0; t < lists.size(); ++t) {
      for (size_t i = 0; i < lists[t].size(); ++i) {
        const bool has_row = models_[t].rows.count(lists[t][i]) > 0;
        const bool is_counted = !has_row && models_[t].min_frequency > 0;
        EXPECT_EQ(lookups[t].handles[i] >= 0, has_row) << "key " << lists[t][i];
        EXPECT_EQ(lookups[t].values[i], ValueOf(is_counted ? kNotPermitted : kFirst));
      }
    }
  }

  void ExpectContent() const {
    for (size_t t = 0; t < models_.size(); ++t) {
      EXPECT_TRUE(UsesOf(gpu_, tables_[t]) == models_[t].rows) << "table " << t;
      EXPECT_TRUE(UsesOf(gpu_, tables_[t]->counts()) == models_[t].counts) << "table " << t;
    }
  }

  const GpuExec& gpu_;
  std::vector<std::unique_ptr<GpuTable>> owners_;
  std::vector<GpuTable*> tables_;
  std::vector<TrainedModel> models_;
};

TEST_F(CudaGpuTableTraining, CountsAsMapsInAnyOrderOfThreads) {
  for (const uint64_t seed : OrderSeeds()) {
    Random random(1);
    for (int round = 0; round < NumCases(6); ++round) {
      SCOPED_TRACE(testing::Message() << "order " << seed << ", round " << round);
      TrainedTables tables(gpu);
      ShuffleOrder(seed);
      for (int64_t step = 0; step < 12; ++step) {
        tables.Train(step, &random);
        if (step % 4 == 1) tables.Erase(&random);
        if (step % 4 == 2) tables.Upsert(&random);
        if (step % 4 == 3) tables.Expire(step);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(CudaGpuTableTraining, KeysThatAreNotUsedArePassedOver) {
  const auto table = MakeGpuTable(gpu, TrainedConfig(0));
  FindOrInsert(gpu, {table.get()}, {{1, 2, 3}}, {{}, {}, 4});
  const DeviceKeys keys({table.get()}, {{1, 2, 5, 6}});
  const DeviceArray<bool> is_used(Array<bool>{true, false, false, true});
  const Lookups lookups({table.get()}, {{1, 2, 5, 6}});
  GpuTableKeys in = keys.view();
  in.is_used = is_used.data();
  ASSERT_TRUE(IsOk(FindInGpuTables(gpu, in, lookups.out())));
  const std::vector<int64_t> found = lookups.ToHost()[0].handles;
  EXPECT_TRUE(found[0] >= 0 && found[1] == -1 && found[2] == -1 && found[3] == -1);
  const int64_t step = 5;
  GpuInsertPlan plan;
  ASSERT_TRUE(IsOk(PlanGpuInsert(gpu, in, &plan)));
  ASSERT_TRUE(IsOk(RunGpuFindOrInsert(gpu, in, {{}, {}, {&step, 1}}, plan, {}, lookups.out())));
  const GpuLookup inserted = lookups.ToHost()[0];
  EXPECT_TRUE(inserted.handles[0] >= 0 && inserted.handles[3] >= 0);
  EXPECT_TRUE(inserted.handles[1] == -1 && inserted.handles[2] == -1);
  EXPECT_EQ(inserted.values[2], ValueOf(kFirst));
  EXPECT_TRUE(UsesOf(gpu, table.get()) ==
              (Uses{{1, {2, 5}}, {2, {1, 4}}, {3, {1, 4}}, {6, {1, 5}}}));
  const DeviceArray<bool> is_erased(4);
  ASSERT_TRUE(IsOk(EraseFromGpuTables(gpu, in, is_erased.span())));
  EXPECT_EQ(is_erased.ToHost().values(), (std::vector<bool>{true, false, false, true}));
  EXPECT_TRUE(UsesOf(gpu, table.get()) == (Uses{{2, {1, 4}}, {3, {1, 4}}}));
}

TEST_F(CudaGpuTableTraining, SlotsKeepTheCounts) {
  const auto table = MakeGpuTable(gpu, TrainedConfig(2));
  ASSERT_TRUE(IsOk(Train(gpu, {table.get()}, {{1, 2, 3}}, {{1, 2, 1}, {}, 4})));
  const Slot slot = {"accumulator", 2, 0.5};
  ASSERT_TRUE(IsOk(table->EnsureSlots(gpu, {&slot, 1})));
  EXPECT_EQ(KeysOf(Export(gpu, *table)), std::vector<int64_t>{2});
  EXPECT_TRUE(UsesOf(gpu, table->counts()) == (Uses{{1, {1, 4}}, {3, {1, 4}}}));
  ASSERT_TRUE(IsOk(Train(gpu, {table.get()}, {{3}}, {{1}, {}, 5})));
  EXPECT_TRUE(UsesOf(gpu, table.get()) == (Uses{{2, {2, 4}}, {3, {2, 5}}}));
}

TEST_F(CudaGpuTableTraining, TakesBatchesWithoutKeys) {
  const auto plain = MakeGpuTable(gpu, TrainedConfig(0)),
             counted = MakeGpuTable(gpu, TrainedConfig(2));
  for (const KeyLists& lists : {KeyLists{{}, {}}, KeyLists{{1}, {}}, KeyLists{{}, {1, 2}}}) {
    ASSERT_TRUE(IsOk(Train(gpu, {plain.get(), counted.get()}, lists, {{}, {}, 3})));
    ASSERT_TRUE(IsOk(Train(gpu, {counted.get()}, {lists[1]}, {{}, {}, 4})));
  }
  EXPECT_TRUE(UsesOf(gpu, plain.get()) == (Uses{{1, {1, 3}}}));
  EXPECT_TRUE(UsesOf(gpu, counted.get()) == (Uses{{1, {2, 4}}, {2, {2, 4}}}));
  EXPECT_TRUE(Erase(gpu, {plain.get(), counted.get()}, {{}, {}}).empty());
}

TEST_F(CudaGpuTableTraining, ForgetsTheOldestCountsWhereThereIsNoRoom) {
  GpuTableConfig config = TrainedConfig(3);
  config.max_count_bytes = BytesOfBuckets(config.layout, 1);
  const auto table = MakeGpuTable(gpu, config);
  for (int64_t step = 0; step < 3; ++step) {
    std::vector<int64_t> keys;
    for (int64_t i = 0; i < kEntries / 2; ++i) keys.push_back(100 * step + i);
    ASSERT_TRUE(IsOk(Train(gpu, {table.get()}, {keys}, {{}, {}, step})));
  }
  const Uses counts = UsesOf(gpu, table->counts());
  EXPECT_EQ(counts.size(), static_cast<size_t>(kEntries));
  for (const auto& [key, use] : counts) EXPECT_GE(use.version, 1) << "key " << key;
}

TEST_F(CudaGpuTableTraining, EvictedRowsAreOfTheTablesAlone) {
  GpuTableConfig config = TrainedConfig(2);
  config.eviction = GpuEviction::kLru;
  config.max_bytes = BytesOfBuckets(config.layout, 1);
  const auto table = MakeGpuTable(gpu, config);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < kEntries; ++key) keys.push_back(key);
  ASSERT_TRUE(
      IsOk(Train(gpu, {table.get()}, {keys}, {std::vector<int32_t>(keys.size(), 2), {}, 1})));
  const DeviceKeys batch({table.get()}, {{-1, -2, -3}});
  const DeviceArray<int32_t> counts(Array<int32_t>{2, 1, 2});
  const DeviceArray<int64_t> handles(3);
  const int64_t step = 2;
  const GpuUses uses = {counts.view(), {}, {&step, 1}};
  GpuTrainingPlan plan;
  ASSERT_TRUE(IsOk(PlanGpuTraining(gpu, batch.view(), uses, &plan)));
  EXPECT_EQ(plan.insert.num_evicted[0], 2);
  const RowArrays arrays(2, table->row_bytes());
  const GpuRows rows = arrays.rows();
  const DeviceArray<int32_t> num_rows(1);
  ASSERT_TRUE(IsOk(RunGpuTraining(gpu, batch.view(), uses, plan, {{&rows, 1}, num_rows.span()},
                                  {handles.span()})));
  EXPECT_EQ(num_rows.ToHost()[0], 2);
  EXPECT_EQ(KeysOf(arrays.First(2)), (std::vector<int64_t>{0, 1}));  // of equal ones the least keys
  EXPECT_TRUE(UsesOf(gpu, table->counts()) == (Uses{{-2, {1, 2}}}));
}

TEST_F(CudaGpuTableTraining, APlanThatFailsChangesNothing) {
  int64_t num_allocations = 0;
  for (bool has_failed = true; has_failed; ++num_allocations) {
    CountingGpu counting;
    const auto table = MakeGpuTable(counting, TrainedConfig(2));
    ASSERT_TRUE(IsOk(Train(counting, {table.get()}, {{1, 2, 3}}, {{1, 2, 1}, {}, 4})));
    const DeviceKeys keys({table.get()}, {{1, 2, 5}});
    const int64_t step = 5;
    const GpuUses uses = {{}, {}, {&step, 1}};
    GpuTrainingPlan plan;
    counting.FailAfter(num_allocations);
    const Status status = PlanGpuTraining(counting, keys.view(), uses, &plan);
    has_failed = counting.has_failed();
    counting.FailAfter(-1);
    EXPECT_EQ(status.ok(), !has_failed);
    EXPECT_TRUE(UsesOf(counting, table.get()) == (Uses{{2, {2, 4}}}));
    EXPECT_TRUE(UsesOf(counting, table->counts()) == (Uses{{1, {1, 4}}, {3, {1, 4}}}));
  }
  EXPECT_GT(num_allocations, 5);
}

TEST_F(CudaGpuTableTraining, RefusesWhatMakesNoSense) {
  EXPECT_TRUE(IsInvalid(CheckGpuTableConfig(TrainedConfig(-1)), {"min_frequency", "-1"}));
  GpuTableConfig given = TrainedConfig(2);
  given.eviction = GpuEviction::kGiven;
  EXPECT_TRUE(IsInvalid(CheckGpuTableConfig(given), {"min_frequency", "scores"}));
  GpuTableConfig no_bytes = TrainedConfig(2);
  no_bytes.max_count_bytes = 0;
  std::unique_ptr<GpuTable> table;
  EXPECT_TRUE(IsInvalid(GpuTable::Create(gpu, no_bytes, &table), {"max_count_bytes = 0"}));
  EXPECT_EQ(table, nullptr);
}

}  // namespace
}  // namespace fused_embedding
