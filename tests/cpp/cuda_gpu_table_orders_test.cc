// Two groups of four lanes take turns wherever lanes wait for each other: what a table holds must
// not depend on who goes first. Between these places an emulation runs one thread at a time. And
// what a digest is, which no result shows.

#include "tests/cpp/cuda_testing.h"

#ifdef FE_CUDA_EMULATION

#include "tests/cpp/cuda_gpu_table_testing.h"
#include "tf_ops/core/table/gpu/buckets.cu.h"
#include "tf_ops/core/table/gpu/growth.cu.h"

namespace fused_embedding {
namespace {

constexpr unsigned kLanes = 4;

using CudaGpuTableOrders = GpuTest;
using Switches = std::vector<int64_t>;

struct Outcome {
  std::vector<GpuLookup> lookups;
  KeyedGpuRows rows;

  bool operator==(const Outcome& other) const {
    return lookups == other.lookups && rows == other.rows;
  }
};

// Up to two switches, after any rounds.
std::vector<Switches> SchedulesOfTwo(int64_t num_rounds) {
  std::vector<Switches> schedules;
  for (int64_t first = 1; first < num_rounds; ++first) {
    schedules.push_back({first});
    for (int64_t second = first + 1; second < num_rounds; ++second) {
      schedules.push_back({first, second});
    }
  }
  return schedules;
}

// Every way to cut the rounds.
std::vector<Switches> AllSchedules(int64_t num_rounds) {
  std::vector<Switches> schedules = {{}};
  for (int64_t round = 1; round < num_rounds; ++round) {
    for (size_t i = schedules.size(); i-- > 0;) {
      schedules.push_back(schedules[i]);
      schedules.back().push_back(round);
    }
  }
  return schedules;
}

// FindOrInsert of these keys in two buckets, which hold 63 and 64 rows.
Outcome Insert(const GpuExec& gpu, const std::vector<int64_t>& keys, const Switches& switches,
               int64_t* num_rounds) {
  GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 2);
  config.min_buckets = 2;
  const auto table = MakeGpuTable(gpu, config);
  std::vector<int64_t> old_keys = KeysOfBucket(config, 0, 0, kEntries - 1);
  for (const int64_t key : KeysOfBucket(config, 1, 0, kEntries)) old_keys.push_back(key);
  FindOrInsert(gpu, {table.get()}, {old_keys}, {});
  cuda_emulation::TakeTurns(kLanes, switches);
  Outcome outcome;
  outcome.lookups = FindOrInsert(gpu, {table.get()}, {keys}, {{}, {}, 1});
  *num_rounds = cuda_emulation::MaxRounds();
  cuda_emulation::TakeTurns(0);
  outcome.rows = Export(gpu, *table);
  return outcome;
}

TEST_F(CudaGpuTableOrders, InsertsTheSameWhenTwoGroupsTakeTurns) {
  const GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 2);
  const std::vector<std::vector<int64_t>> batches = {
      // A free entry in bucket 0, an eviction in bucket 1.
      {KeyOfBucket(config, 0, 100), KeyOfBucket(config, 1, 100)},
      // One bucket: its second key needs an eviction.
      {KeyOfBucket(config, 0, 100), KeyOfBucket(config, 0, 101)}};
  for (const std::vector<int64_t>& keys : batches) {
    int64_t num_rounds = 0;
    const Outcome want = Insert(gpu, keys, {}, &num_rounds);
    ASSERT_EQ(want.rows.size(), static_cast<size_t>(2 * kEntries));
    ASSERT_EQ(want.lookups[0].evicted.size(), 1u);
    const std::vector<Switches> schedules = SchedulesOfTwo(num_rounds);
    EXPECT_GT(schedules.size(), 500u);
    for (size_t i = 0; i < schedules.size(); i += static_cast<size_t>(4 / NumCases(4))) {
      int64_t rounds = 0;
      ASSERT_TRUE(Insert(gpu, keys, schedules[i], &rounds) == want)
          << ::testing::PrintToString(schedules[i]);
    }
  }
}

// Both buckets of a table are divided.
KeyedGpuRows Double(const GpuExec& gpu, const Switches& switches, int64_t* num_rounds) {
  GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 4);
  config.min_buckets = 2;
  const auto table = MakeGpuTable(gpu, config);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 90; ++key) keys.push_back(key);
  FindOrInsert(gpu, {table.get()}, {keys}, {});
  cuda_emulation::TakeTurns(kLanes, switches);
  EXPECT_TRUE(IsOk(DoubleGpuTables(gpu, {table.get()})));
  Cuda(cudaStreamSynchronize(nullptr));
  *num_rounds = cuda_emulation::MaxRounds();
  cuda_emulation::TakeTurns(0);
  const GpuLookup lookup = FindOrInsert(gpu, {table.get()}, {keys}, {})[0];
  for (const int64_t handle : lookup.handles) {
    EXPECT_GE(handle, 0);
  }
  return Export(gpu, *table);
}

TEST_F(CudaGpuTableOrders, DoublesTheSameWhenTwoGroupsTakeTurns) {
  int64_t num_rounds = 0;
  const KeyedGpuRows want = Double(gpu, {}, &num_rounds);
  ASSERT_EQ(want.size(), 90u);
  EXPECT_GE(num_rounds, 4);
  for (const Switches& switches : AllSchedules(num_rounds)) {
    int64_t rounds = 0;
    EXPECT_TRUE(Double(gpu, switches, &rounds) == want) << ::testing::PrintToString(switches);
  }
}

// Else a search would compare most keys of a bucket.
TEST_F(CudaGpuTableOrders, KeysOfABucketHaveManyDigests) {
  GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 256);
  config.min_buckets = 256;
  const GpuTableView view = MakeGpuTable(gpu, config)->view();
  std::set<uint8_t> digests;
  for (int64_t key = 0; key < 200000; ++key) {
    const uint64_t hash = view.Hash(key);
    if (view.BucketOf(hash) == 7) digests.insert(GpuTableView::Digest(hash));
  }
  EXPECT_GT(digests.size(), 200u);
  EXPECT_EQ(digests.count(0), 0u);  // of a free entry
}

}  // namespace
}  // namespace fused_embedding

#endif  // FE_CUDA_EMULATION
