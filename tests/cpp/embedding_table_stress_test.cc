// Tables under many threads, many keys, chosen keys and too little memory.

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/cpp/table_testing.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/table/row_slab.h"

namespace fused_embedding {
namespace {

// --- Threads ---

constexpr int64_t kStressKeys = 3000;
constexpr int kStressRounds = 60;

// Rows are whole: all their numbers were changed alike.
void ExpectWhole(const float* value, int64_t dim) {
  for (int64_t d = 1; d < dim; ++d) ASSERT_EQ(value[d], value[0]) << "a row is torn";
}

// One trainer: a lookup and an update by handle of random keys in each round.
void Train(EmbeddingTable* table, int seed, std::vector<std::atomic<int64_t>>* counts) {
  Random random(seed);
  const int64_t dim = table->config().layout.dim;
  for (int round = 0; round < kStressRounds; ++round) {
    std::set<int64_t> distinct;
    while (distinct.size() < 512) distinct.insert(RandomInt(&random, 0, kStressKeys - 1));
    const Ints keys(distinct.begin(), distinct.end());
    LookupArgs args;
    for (const int64_t key : keys) {
      args.counts.push_back(static_cast<int32_t>(RandomInt(&random, 1, 3)));
      (*counts)[static_cast<size_t>(key)] += args.counts.back();
    }
    const Lookup lookup = LookUp(table, keys, args);
    ASSERT_TRUE(IsOk(lookup.status));
    for (size_t i = 0; i < keys.size(); ++i) {
      ExpectWhole(lookup.values.data() + static_cast<int64_t>(i) * dim, dim);
    }
    ASSERT_TRUE(IsOk(table->ForEachRow(SerialExec(), View(keys), View(lookup.handles), AddToRows)));
  }
}

TEST(EmbeddingTableStressTest, ThreadsLoseNoCountAndNoUpdate) {
  TableConfig config = TestConfig();
  config.layout.dim = 12;
  config.initializer.a = 0.0;
  const auto table = MakeTable(config);
  std::vector<std::atomic<int64_t>> counts(kStressKeys);
  std::atomic<bool> is_over{false};
  // Beside the trainers: evaluation, saving, an expiry that finds nothing, a slot that comes.
  const auto look_on = [&] {
    Ints keys(kStressKeys);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
    const ThreadedExec exec(2);
    for (int round = 0; !is_over; ++round) {
      const Lookup lookup = LookUp(table.get(), keys, {{}, 0, false}, exec);
      for (int64_t i = 0; i < kStressKeys; ++i) ExpectWhole(lookup.values.data() + i * 12, 12);
      for (const auto& [key, row] : ContentsOf(*table).rows) {
        float value[12];
        std::memcpy(value, row.data() + sizeof(RowHeader), sizeof(value));
        ExpectWhole(value, 12);
      }
      int64_t num_expired = 0;
      EXPECT_TRUE(IsOk(table->Expire(exec, {0, 1000, 0.0}, &num_expired)));
      EXPECT_EQ(num_expired, 0);
      const Slot slot{"slot" + std::to_string(round % 4), 3, 0.5};
      EXPECT_TRUE(IsOk(table->EnsureSlots({&slot, 1})));
      EXPECT_LE(table->Statistics().size, kStressKeys);
    }
  };
  std::vector<std::thread> trainers;
  for (int t = 0; t < 8; ++t) trainers.emplace_back(Train, table.get(), t, &counts);
  std::thread onlooker(look_on);
  for (std::thread& trainer : trainers) trainer.join();
  is_over = true;
  onlooker.join();
  double num_updates = 0;
  for (const auto& [key, row] : ContentsOf(*table).rows) {
    ASSERT_EQ(HeaderOf(row).frequency, counts[static_cast<size_t>(key)]) << "key " << key;
    float value;
    std::memcpy(&value, row.data() + sizeof(RowHeader), sizeof(value));
    num_updates += value;
  }
  EXPECT_EQ(num_updates, 8.0 * kStressRounds * 512);
}

// All shards of a batch are locked at once where a full table is an error.
TEST(EmbeddingTableStressTest, ThreadsOnAFullTable) {
  TableConfig config = TestConfig();
  config.max_capacity = 4000;
  config.num_shards = 16;
  const auto table = MakeTable(config);
  std::atomic<int64_t> num_errors{0};
  const auto work = [&](int seed) {
    Random random(seed);
    for (int round = 0; round < 100; ++round) {
      Ints keys(64);
      for (int64_t& key : keys) key = RandomInt(&random, 0, 20000);
      const Lookup lookup = LookUp(table.get(), keys);
      num_errors += !lookup.status.ok();
      EXPECT_TRUE(lookup.status.ok() ||
                  Fails(lookup.status, StatusCode::kResourceExhausted, {"max_capacity = 4000"}));
      EraseKeys(table.get(), {keys.begin(), keys.begin() + 8});
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(table->size(), config.max_capacity);
  EXPECT_GT(num_errors, 0);
}

// --- Chosen keys ---

double FindSeconds(EmbeddingTable* table, const Ints& keys) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(IsOk(LookUp(table, keys, {{}, 0, false}).status));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::min(best, seconds.count());
  }
  return best;
}

TEST(EmbeddingTableStressTest, KeysCannotBeChosenToCollide) {
  ASSERT_EQ(InverseMix64(Mix64(12345)), 12345u);
  constexpr int64_t kKeys = 50000;
  Ints random_keys, strides, chosen, chosen_by_seed;
  const uint64_t key_of_seed = Mix64(TestConfig().initializer.seed + 0xd1b54a32d192ed03ULL);
  for (int64_t i = 0; i < kKeys; ++i) {
    random_keys.push_back(static_cast<int64_t>(Mix64(static_cast<uint64_t>(i))));
    strides.push_back(i << 44);
    const uint64_t collides = InverseMix64(static_cast<uint64_t>(i) << 44);
    chosen.push_back(static_cast<int64_t>(collides));
    chosen_by_seed.push_back(static_cast<int64_t>(collides ^ key_of_seed));
  }
  const auto seconds = [](const Ints& keys) {
    const auto table = MakeTable(TestConfig());
    EXPECT_TRUE(IsOk(LookUp(table.get(), keys).status));
    return FindSeconds(table.get(), keys);
  };
  // Collisions would cost a factor of thousands; the rest is what a busy machine does.
  const double limit = 10 * seconds(random_keys);
  EXPECT_LT(seconds(strides), limit);
  EXPECT_LT(seconds(chosen), limit);
  EXPECT_LT(seconds(chosen_by_seed), limit);
}

// --- Memory ---

int64_t AvailableBytes() {
  std::ifstream info("/proc/meminfo");
  std::string name, unit;
  for (int64_t kilobytes = 0; info >> name >> kilobytes >> unit;) {
    if (name == "MemAvailable:") return kilobytes << 10;
  }
  return 0;
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0, resident_pages = 0;
  statm >> pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

// Twenty million keys with FE_SLOW_TESTS=1 in the environment, and two million else.
TEST(EmbeddingTableStressTest, MemoryOfManyKeys) {
  if (IsSanitized())
    GTEST_SKIP() << "under a sanitizer: its shadow memory would be measured as well";
  const int64_t num_keys = std::getenv("FE_SLOW_TESTS") == nullptr ? 2'000'000 : 20'000'000;
  constexpr int64_t kBatch = 1 << 16;
  if (AvailableBytes() < 2 * 160 * num_keys) GTEST_SKIP() << "too little memory is available";
  TableConfig config = TestConfig();
  config.layout.dim = 16;
  const auto table = MakeTable(config);
  const Slot slot{"Adagrad/accumulator", 16, 0.1};
  ASSERT_TRUE(IsOk(table->EnsureSlots({&slot, 1})));
  malloc_trim(0);  // what other tests freed must not be used here unseen
  const int64_t before = ResidentBytes();
  Array<int64_t> keys(kBatch);
  Array<float> values(kBatch * 16);
  LookupOutput out;
  out.values = reinterpret_cast<char*>(values.data());
  for (int64_t begin = 0; begin < num_keys; begin += kBatch) {
    for (int64_t i = 0; i < kBatch; ++i) {
      keys[i] = static_cast<int64_t>(Mix64(static_cast<uint64_t>(begin + i)));
    }
    ASSERT_TRUE(IsOk(table->FindOrInsert(SerialExec(), {keys.view(), {}, 1}, &out)));
  }
  const TableStatistics statistics = table->Statistics();
  const double entries = static_cast<double>(statistics.size);
  ASSERT_GE(statistics.size, num_keys);
  const double counted = static_cast<double>(statistics.memory_bytes) / entries;
  const double resident = static_cast<double>(ResidentBytes() - before) / entries;
  // Key, value, slot, frequency and version as a checkpoint has them.
  constexpr double kPayload = 8 + 64 + 64 + 8 + 8;
  std::printf("%.0f keys: %.1f bytes each by Statistics, %.1f resident, payload %.0f\n", entries,
              counted, resident, kPayload);
  EXPECT_LE(counted, 1.3 * kPayload);
  EXPECT_LE(resident, 1.3 * kPayload);
  EXPECT_NEAR(counted, resident, 0.05 * resident);
}

// Huge pages of which a row or two are used would be as much again.
TEST(EmbeddingTableStressTest, MemoryOfExpectedRows) {
  if (IsSanitized())
    GTEST_SKIP() << "under a sanitizer: its shadow memory would be measured as well";
  constexpr int64_t kRowBytes = 4096, kRows = 513, kSlabs = 16;
  std::vector<RowSlab> slabs;
  malloc_trim(0);
  const int64_t before = ResidentBytes();
  for (int64_t i = 0; i < kSlabs; ++i) {
    slabs.emplace_back(kRowBytes);
    slabs.back().ExpectRows(kRows);
    ASSERT_TRUE(IsOk(slabs.back().Reserve(kRows)));
    for (int64_t row = 0; row < kRows; ++row) {
      std::memset(slabs.back().row(slabs.back().Add(row)), 1, kRowBytes);
    }
  }
  const int64_t resident = ResidentBytes() - before;
  EXPECT_GE(resident, kSlabs * kRows * kRowBytes * 3 / 4);
  EXPECT_LE(resident, kSlabs * kRows * kRowBytes * 5 / 4);
}

int64_t AddressSpaceBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// Leaves the process this much address space for as long as it lives.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t spare_bytes) {
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(AddressSpaceBytes() + spare_bytes);
    setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_;
};

// Takes what memory the process may still have, chunks that earlier tests freed among it.
std::vector<std::unique_ptr<char[]>> AllMemory() {
  constexpr size_t kBytes = size_t{1} << 20;
  std::vector<std::unique_ptr<char[]>> blocks;
  blocks.reserve(4096);
  while (char* block = new (std::nothrow) char[kBytes]) blocks.emplace_back(block);
  return blocks;
}

TEST(EmbeddingTableStressTest, ATableSurvivesALackOfMemory) {
  if (IsSanitized()) GTEST_SKIP() << "under a sanitizer: they need address space of their own";
  TableConfig config = TestConfig();
  config.layout.dim = 256;
  config.num_shards = 1;
  const auto table = MakeTable(config);
  Ints first(20000), second(60000);
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int64_t>(i);
  for (size_t i = 0; i < second.size(); ++i) second[i] = -1 - static_cast<int64_t>(i);
  ASSERT_TRUE(IsOk(LookUp(table.get(), first).status));
  std::vector<float> values(second.size() * 256);
  LookupOutput out;
  out.values = reinterpret_cast<char*>(values.data());
  const Slot slot{"slot", 256, 0.0};
  {
    const MemoryLimit limit(int64_t{40} << 20);
    EXPECT_TRUE(Fails(table->FindOrInsert(SerialExec(), {View(second), {}, 1}, &out),
                      StatusCode::kResourceExhausted, {"allocate"}));
    EXPECT_TRUE(
        Fails(table->EnsureSlots({&slot, 1}), StatusCode::kResourceExhausted, {"allocate"}));
    const auto all_memory = AllMemory();
    RowLayout layout;
    std::vector<char> rows;
    FilteredKeys filtered;
    EXPECT_TRUE(Fails(table->CopyShard(0, &layout, &rows, &filtered),
                      StatusCode::kResourceExhausted, {"no memory"}));
  }
  // What was there is there, every row is whole, and there is room again.
  for (const int64_t handle : LookUp(table.get(), first, {{}, 1, false}).handles) {
    ASSERT_GE(handle, 0);
  }
  for (const auto& [key, row] : ContentsOf(*table).rows) {
    const float* value = reinterpret_cast<const float*>(row.data() + sizeof(RowHeader));
    for (int64_t d = 0; d < 256; ++d) ASSERT_EQ(value[d], 0.5f) << "key " << key;
  }
  EXPECT_TRUE(IsOk(table->EnsureSlots({&slot, 1})));
  EXPECT_EQ(table->layout().slots.size(), 1u);
  EXPECT_TRUE(IsOk(table->FindOrInsert(SerialExec(), {View(second), {}, 1}, &out)));
  EXPECT_EQ(table->size(), 80000);
}

}  // namespace
}  // namespace fused_embedding
