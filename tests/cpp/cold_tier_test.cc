// Tables whose rows DRAM has no room for: the same content as in DRAM alone, many threads, errors
// of the store.

#include <thread>

#include "tests/cpp/cold_tier_testing.h"
#include "tests/cpp/temporary_folder.h"
#include "tf_ops/core/checkpoint/checkpoint.h"

namespace fused_embedding {
namespace {

// --- The same content ---

// The steps of an optimizer with a slot, over keys some of which are frequent.
TableContents TrainedContents(const TableConfig& config, TableStatistics* statistics) {
  const auto table = MakeTable(config);
  const std::vector<Slot> slots = {{"sum", config.layout.dim, 0.1}};
  Random random(3);
  const ThreadedExec exec(3);
  for (int64_t step = 0; step < 60; ++step) {
    std::set<int64_t> distinct;
    while (distinct.size() < 700) {
      const int64_t bound = RandomBool(&random) ? 500 : 20000;
      distinct.insert(RandomInt(&random, 0, bound));
    }
    const Ints keys(distinct.begin(), distinct.end());
    const Lookup lookup = LookUp(table.get(), keys, {{}, step}, exec);
    EXPECT_TRUE(IsOk(lookup.status));
    if (step == 5) {
      EXPECT_TRUE(IsOk(table->EnsureSlots(AsSpan(slots))));
    }
    const auto update = [](const RowLayout& layout, const RowBatch& batch) {
      for (int64_t i = 0; i < batch.n; ++i) {
        float* value = reinterpret_cast<float*>(batch.rows[i] + layout.value_offset());
        float* sum = reinterpret_cast<float*>(batch.rows[i] + layout.slots_offset());
        for (int64_t d = 0; d < layout.dim; ++d) {
          const float grad = 0.01f * static_cast<float>(d + 1) * value[d];
          if (layout.slot_width() > 0) sum[d] += grad * grad;
          value[d] -= grad / (layout.slot_width() > 0 ? std::sqrt(sum[d]) : 1.0f);
        }
      }
    };
    EXPECT_TRUE(IsOk(table->ForEachRow(exec, View(keys), View(lookup.handles), update)));
  }
  *statistics = table->Statistics();
  return ContentsOf(*table);
}

class ColdTierStoreTest : public ColdStoreTest, public ::testing::WithParamInterface<const char*> {
 protected:
  ColdTierStoreTest() : ColdStoreTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Stores, ColdTierStoreTest, ::testing::Values("memory", "rocksdb"));

TEST_P(ColdTierStoreTest, TrainsAsATableInDram) {
  TableConfig config = TieredConfig(Path("tier"));
  TableConfig in_dram = config;
  in_dram.storage = StorageConfig();
  TableStatistics statistics;
  const TableContents want = TrainedContents(in_dram, &statistics);
  EXPECT_GT(want.rows.size(), 10000u);
  EXPECT_EQ(statistics.demotions, 0);
  for (const CacheStrategy strategy : {CacheStrategy::kLru, CacheStrategy::kLfu}) {
    for (const int64_t budget : {16 << 10, 64 << 10, 256 << 10}) {
      config.storage.strategy = strategy;
      config.storage.open = [&](const ColdStoreOptions& options, StorePtr* store) {
        return Open(options, store);
      };
      config.storage.dram_bytes = kStoreBytes + budget;
      EXPECT_TRUE(TrainedContents(config, &statistics) == want) << budget;
      EXPECT_EQ(statistics.size, want.rows.size());
      EXPECT_GT(statistics.demotions, 5000);
      EXPECT_GT(statistics.cold_hits, 1000);
      EXPECT_GT(statistics.cold_puts, 5000);
    }
  }
}

// A store that must read its filters and index from the disk reads three times for a key.
TEST(ColdTierTest, AStoreHasMemoryForItsFilters) {
  const TemporaryFolder folder;
  TableConfig config = TieredConfig(folder.path());
  int64_t memory_bytes = 0;
  config.storage.open = [&](const ColdStoreOptions& options, StorePtr* store) {
    memory_bytes = options.memory_bytes;
    return MemoryColdStore::Open(options, store);
  };
  constexpr int64_t kMiB = int64_t{1} << 20;
  for (const auto& [dram, want] :
       std::map<int64_t, int64_t>{{16, 4}, {80, 8}, {2560, 256}, {4096, 256}, {64 << 10, 4096}}) {
    config.storage.dram_bytes = dram * kMiB;
    MakeTable(config);
    EXPECT_EQ(memory_bytes, want * kMiB) << dram;
  }
}

TEST(ColdTierTest, HasNoMoreInDramThanItMay) {
  // A shard of the second and third fills huge pages, and a part of one more.
  for (const int64_t dram : {int64_t{4} << 20, int64_t{12} << 20, int64_t{20} << 20}) {
    const TemporaryFolder folder;
    TableConfig config = TieredConfig(folder.path(), dram);
    config.layout.dim = 64;
    const auto table = MakeTable(config);
    const int64_t num_steps = dram / (40 << 10);
    int64_t most = 0;
    for (int64_t step = 0; step < num_steps; ++step) {
      Train(table.get(), KeyRange(step * 1000, step * 1000 + 1000));
      // The memory store's rows are on its disk, so to say.
      most = std::max(most, table->Statistics().memory_bytes - table->Statistics().cold_bytes);
    }
    EXPECT_EQ(table->size(), num_steps * 1000);
    EXPECT_LT(most, dram * 1.2);
    EXPECT_GT(most, dram / 2);
  }
}

TEST(ColdTierTest, EvaluationReadsWithoutAChange) {
  const TemporaryFolder folder;
  const auto table = MakeTable(TieredConfig(folder.path()));
  Train(table.get(), KeyRange(0, 5000));
  const TableContents before = ContentsOf(*table);
  const Ints keys = KeyRange(-1000, 6000);
  const Lookup lookup = LookUp(table.get(), keys, {{}, -1, false});
  ASSERT_TRUE(IsOk(lookup.status));
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool is_there = keys[i] >= 0 && keys[i] < 5000;
    ASSERT_EQ(lookup.values[8 * i], is_there ? 1.5f : 0.5f) << keys[i];
  }
  EXPECT_TRUE(ContentsOf(*table) == before);
}

// --- Threads ---

// Above a memory store that fails, or takes its time, as `faults_` say.
class FaultyTierTest : public ::testing::Test {
 protected:
  FaultyTierTest() {
    config_.storage.open = [this](const ColdStoreOptions& options, StorePtr* store) {
      StorePtr inner;
      FE_RETURN_IF_ERROR(MemoryColdStore::Open(options, &inner));
      *store = std::make_unique<FaultyColdStore>(options, std::move(inner), &faults_);
      return Status();
    };
  }
  // Of rows in DRAM that are few.
  std::unique_ptr<EmbeddingTable> MakeSlowTable(int64_t latency_us) {
    faults_.latency_us = latency_us;
    config_.storage.dram_bytes = kStoreBytes + (32 << 10);
    return MakeTable(config_);
  }

  const TemporaryFolder folder_;
  Faults faults_;
  TableConfig config_ = TieredConfig(folder_.path() + "/tier");
};

constexpr int64_t kThreadKeys = 4000;

// Adds one to random rows, and counts that.
void TrainAtRandom(EmbeddingTable* table, int seed, std::vector<std::atomic<int64_t>>* counts) {
  Random random(seed);
  for (int round = 0; round < 40; ++round) {
    std::set<int64_t> distinct;
    while (distinct.size() < 200) distinct.insert(RandomInt(&random, 0, kThreadKeys - 1));
    for (const int64_t key : distinct) ++(*counts)[static_cast<size_t>(key)];
    Train(table, Ints(distinct.begin(), distinct.end()));
  }
}

void ReadWholeRows(EmbeddingTable* table) {
  const Lookup lookup = LookUp(table, KeyRange(0, kThreadKeys), {{}, -1, false});
  ASSERT_TRUE(IsOk(lookup.status));
  for (size_t i = 0; i < lookup.values.size(); ++i) {
    ASSERT_EQ(lookup.values[i], lookup.values[i / 8 * 8]) << "a row is torn";
  }
}

void ExpectCounts(const EmbeddingTable& table, const std::vector<std::atomic<int64_t>>& counts) {
  const RowLayout layout = table.layout();
  const TableContents contents = ContentsOf(table);
  for (int64_t key = 0; key < kThreadKeys; ++key) {
    const int64_t count = counts[static_cast<size_t>(key)];
    ASSERT_EQ(contents.rows.count(key), count > 0 ? 1u : 0u) << key;
    if (count == 0) continue;
    const std::string& row = contents.rows.at(key);
    ASSERT_EQ(HeaderOf(row).frequency, count) << key;
    float value = 0;
    std::memcpy(&value, row.data() + layout.value_offset(), sizeof(value));
    ASSERT_EQ(value, 0.5f + static_cast<float>(count)) << key;
  }
}

// Trainers, readers, a saver and one who adds slots on one table, whose store is slow.
TEST_F(FaultyTierTest, ManyThreadsWorkOnTheSameRows) {
  const auto table = MakeSlowTable(200);
  std::vector<std::atomic<int64_t>> counts(kThreadKeys);
  std::atomic<bool> is_done{false};
  std::vector<std::thread> trainers, others;
  for (int seed = 0; seed < 4; ++seed) {
    trainers.emplace_back([&, seed] { TrainAtRandom(table.get(), seed, &counts); });
  }
  others.emplace_back([&] {
    while (!is_done) ReadWholeRows(table.get());
  });
  others.emplace_back([&] {
    while (!is_done) ASSERT_LE(ContentsOf(*table).rows.size(), size_t{kThreadKeys});
  });
  others.emplace_back([&] {
    for (int i = 0; !is_done; ++i) {
      const std::vector<Slot> slots = {{"slot" + std::to_string(i % 3), 1, 0.0}};
      ASSERT_TRUE(IsOk(table->EnsureSlots(AsSpan(slots))));
      ASSERT_EQ(EraseKeys(table.get(), KeyRange(kThreadKeys, 2 * kThreadKeys)), 0);
    }
  });
  for (std::thread& thread : trainers) thread.join();
  is_done = true;
  for (std::thread& thread : others) thread.join();
  ExpectCounts(*table, counts);
  EXPECT_GT(table->Statistics().demotions, 5000);
}

// Keys that go and come while saves write what is in DRAM, and others push them out of it.
// One of more rows than may wait for a store that is slow.
TEST_F(FaultyTierTest, ALargeBatchWaitsForRoom) {
  const auto table = MakeSlowTable(500);
  std::atomic<bool> is_done{false};
  int64_t most = 0;
  std::thread watcher([&] {
    while (!is_done) most = std::max(most, table->Statistics().leaving);
  });
  Train(table.get(), KeyRange(0, 30000));
  is_done = true;
  watcher.join();
  EXPECT_GT(most, 0);
  EXPECT_LT(most, 3 * 1024) << "of 30,000 rows; a part of a batch has 1024";
}

TEST_F(FaultyTierTest, KeysThatAreErasedAndMadeAgain) {
  const auto table = MakeSlowTable(300);
  std::atomic<int> num_working{3};
  std::vector<std::thread> threads;
  for (int64_t worker = 0; worker < 3; ++worker) {
    threads.emplace_back([&, worker] {
      const Ints keys = KeyRange(worker * 300, worker * 300 + 300);
      for (int round = 0; round < 60; ++round) {
        Train(table.get(), keys);
        const Lookup lookup = LookUp(table.get(), keys, {{}, -1, false});
        for (const float value : lookup.values) ASSERT_EQ(value, 1.5f) << "round " << round;
        ASSERT_EQ(EraseKeys(table.get(), keys), 300);
        for (const float value : LookUp(table.get(), keys).values) ASSERT_EQ(value, 0.5f);
      }
      ASSERT_EQ(EraseKeys(table.get(), keys), 300);
      --num_working;
    });
  }
  while (num_working > 0 && !HasFatalFailure()) ASSERT_LE(ContentsOf(*table).rows.size(), 900u);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ContentsOf(*table).rows.size(), 0u);
}

TEST(ColdTierTest, ASaveWritesWhatTheStoreLacks) {
  const TemporaryFolder folder;
  const auto table = MakeTable(TieredConfig(folder.path()));
  Train(table.get(), KeyRange(0, 3000));
  const TableContents contents = ContentsOf(*table);
  const int64_t num_written = table->Statistics().written_back;
  EXPECT_GE(num_written, 3000);
  EXPECT_TRUE(ContentsOf(*table) == contents);
  EXPECT_EQ(table->Statistics().written_back, num_written);
  Train(table.get(), {7});
  EXPECT_EQ(ContentsOf(*table).rows.size(), 3000u);
  EXPECT_LE(table->Statistics().written_back, num_written + 2);
}

// --- Errors ---

TEST_F(FaultyTierTest, NothingIsLostWhileTheDiskIsFull) {
  const auto table = MakeTable(config_);
  faults_.free_bytes = 100 << 10;
  int64_t num_trained = 0;
  Status status;
  while (status.ok()) {
    ASSERT_LT(num_trained, 1000000) << "no error";
    status = LookUp(table.get(), KeyRange(num_trained, num_trained + 500)).status;
    if (status.ok()) num_trained += 500;
  }
  EXPECT_TRUE(Fails(status, StatusCode::kResourceExhausted,
                    {folder_.path().c_str(), "No space left on device"}));
  EXPECT_GT(num_trained, 2000);
  EXPECT_FALSE(LookUp(table.get(), {-1}).status.ok()) << "there is no room yet";
  EXPECT_FALSE(table->CopyCold([](const RowLayout&, Span<const char>) { return Status(); }).ok());
  faults_.free_bytes = -1;
  Train(table.get(), KeyRange(0, num_trained));
  const TableContents contents = ContentsOf(*table);
  EXPECT_EQ(contents.rows.size(), static_cast<size_t>(num_trained));
  for (const auto& [key, row] : contents.rows) ASSERT_EQ(HeaderOf(row).frequency, 2u) << key;
}

TEST_F(FaultyTierTest, AWriteThatBeganBeforeFailsNobodyElse) {
  const auto table = MakeTable(config_);
  CallsInFlight in_flight;
  faults_.in_flight = &in_flight;
  faults_.free_bytes = 0;
  int64_t num_keys = 0;
  while (LookUp(table.get(), KeyRange(num_keys, num_keys + 500)).status.ok()) num_keys += 500;
  faults_.full_latency_us = 200'000;
  std::thread first([&] { LookUp(table.get(), {-1}); });
  while (in_flight.writes == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // The write of the first has found the disk full, and will say so.
  faults_.free_bytes = -1;
  faults_.latency_us = 20'000;  // the next write takes longer than it takes to see the error
  EXPECT_TRUE(IsOk(LookUp(table.get(), {-2}).status));
  first.join();
}

TEST_F(FaultyTierTest, WhatIsErasedStaysErasedUntilTheStoreKnows) {
  const auto table = MakeTable(config_);
  Train(table.get(), KeyRange(0, 3000));
  ContentsOf(*table);  // all of them are in the store
  EXPECT_EQ(EraseKeys(table.get(), KeyRange(0, 1000)), 1000);
  // Broken and not one error, which a write in the background may have taken.
  faults_.is_broken = true;
  EXPECT_FALSE(table->CopyCold([](const RowLayout&, Span<const char>) { return Status(); }).ok());
  faults_.is_broken = false;
  const Lookup lookup = LookUp(table.get(), KeyRange(0, 1000), {{}, -1, false});
  ASSERT_TRUE(IsOk(lookup.status));
  for (const float value : lookup.values) ASSERT_EQ(value, 0.5f);
  EXPECT_EQ(EraseKeys(table.get(), KeyRange(0, 1000)), 0);
  EXPECT_EQ(ContentsOf(*table).rows.size(), 2000u);
}

TEST_F(FaultyTierTest, ReadsThatFailCanBeTriedAgain) {
  const auto table = MakeTable(config_);
  Train(table.get(), KeyRange(0, 5000));
  const TableContents before = ContentsOf(*table);
  for (int i = 0; i < 3; ++i) {
    faults_.calls_until_error = 0;
    const Status status = LookUp(table.get(), KeyRange(0, 5000), {{}, -1, false}).status;
    EXPECT_TRUE(Fails(status, StatusCode::kFailedPrecondition,
                      {folder_.path().c_str(), "Input/output error"}));
    faults_.calls_until_error = -1;
  }
  EXPECT_TRUE(IsOk(LookUp(table.get(), KeyRange(0, 5000), {{}, -1, false}).status));
  EXPECT_TRUE(ContentsOf(*table) == before);
}

// Each call to the store fails once: the operation says so, and nothing is lost.
TEST_F(FaultyTierTest, AnyCallMayFail) {
  int num_failed = 0;
  for (int64_t number = 0; number < 60; ++number) {
    faults_.calls_until_error = -1;
    config_.storage.path = folder_.path() + "/" + std::to_string(number);
    const auto table = MakeTable(config_);
    Train(table.get(), KeyRange(0, 3000));
    faults_.calls_until_error = number;
    const std::vector<Slot> slots = {{"slot", 8, 0.5}};
    const Status widened = table->EnsureSlots(AsSpan(slots));
    const RowLayout layout = table->layout();
    EXPECT_EQ(layout.slots.size(), widened.ok() ? 1u : 0u);
    const Status saved = SaveTable(*table, folder_.path() + "/checkpoint");
    Expiry expire;
    expire.l2_threshold = 0.1;
    int64_t num_expired = 0;
    const Status expired = table->Expire(SerialExec(), expire, &num_expired);
    faults_.calls_until_error = -1;
    EXPECT_EQ(num_expired, 0);
    const TableContents contents = ContentsOf(*table);
    ASSERT_EQ(contents.rows.size(), 3000u) << number;
    for (const auto& [key, row] : contents.rows) {
      ASSERT_EQ(row.size(), static_cast<size_t>(layout.row_bytes()));
      float value = 0;
      std::memcpy(&value, row.data() + layout.value_offset(), sizeof(value));
      ASSERT_EQ(value, 1.5f) << key << " after call " << number;
    }
    num_failed += !widened.ok() || !saved.ok() || !expired.ok();
  }
  EXPECT_GT(num_failed, 20);  // a write in the background is tried again
}

TEST_F(FaultyTierTest, AStoreThatCannotBeOpened) {
  config_.storage.open = [](const ColdStoreOptions& options, StorePtr*) {
    return InvalidArgument("cannot open ", options.path);
  };
  std::unique_ptr<EmbeddingTable> table;
  EXPECT_TRUE(IsInvalid(EmbeddingTable::Create(config_, &table), {folder_.path().c_str()}));
  EXPECT_EQ(table, nullptr);
}

TEST_F(FaultyTierTest, ConfigsThatMakeNoSense) {
  std::unique_ptr<EmbeddingTable> table;
  for (const int64_t bytes : {int64_t{-5}, int64_t{0}, kStoreBytes}) {
    TableConfig config = config_;
    config.storage.dram_bytes = bytes;
    EXPECT_TRUE(IsInvalid(EmbeddingTable::Create(config, &table), {"dram_bytes", "too small"}));
  }
  TableConfig config = config_;
  config.max_capacity = 100;
  EXPECT_TRUE(IsInvalid(EmbeddingTable::Create(config, &table), {"max_capacity"}));
}

}  // namespace
}  // namespace fused_embedding
