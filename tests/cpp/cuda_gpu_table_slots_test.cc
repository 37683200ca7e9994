// Slots that an optimizer adds to rows that are there.

#include "tests/cpp/cuda_gpu_table_testing.h"

namespace fused_embedding {
namespace {

using CudaGpuTableSlots = GpuTest;

// Twelve of as many numbers as rows of `config` have are added: rows grow beyond 16 more bytes.
const std::vector<Slot> kAdded = {{"moment", 3, 0.5}, {"scale", 1, 2.0}, {"wide", 8, -3.0}};

GpuTableConfig SlotsConfig() {
  GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 8);
  config.max_bytes *= 2;
  return config;
}

std::unique_ptr<GpuTable> FilledTable(const GpuExec& gpu, const std::vector<int64_t>& keys) {
  auto table = MakeGpuTable(gpu, SlotsConfig());
  FindOrInsert(gpu, {table.get()}, {keys}, {{}, {}, 3});
  return table;
}

std::vector<int64_t> Keys(int64_t begin, int64_t end) {
  std::vector<int64_t> keys;
  for (int64_t key = begin; key < end; ++key) keys.push_back(key);
  return keys;
}

// The row's bytes with kAdded behind its own value (3 numbers), slots (3 and 1) and padding (0).
std::string WithAdded(const std::string& row, const GpuTable& table) {
  std::string bytes = row.substr(0, 4 * (3 + 3 + 1) + 4);
  for (const Slot& slot : kAdded) {
    const float number = static_cast<float>(slot.initial);
    for (int64_t i = 0; i < slot.width; ++i) {
      bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
    }
  }
  bytes.resize(static_cast<size_t>(table.row_bytes()));
  return bytes;
}

TEST_F(CudaGpuTableSlots, RowsKeepWhatTheyHave) {
  for (const uint64_t seed : OrderSeeds()) {
    const auto table = FilledTable(gpu, Keys(0, 300));
    EXPECT_GT(table->num_buckets(), 4);  // several pieces
    const KeyedGpuRows before = Export(gpu, *table);
    const auto handles = Find(gpu, {table.get()}, {Keys(0, 300)})[0].handles;
    ShuffleOrder(seed);
    const int64_t num_waits = NumWaits(), num_changes = table->num_changes();
    ASSERT_TRUE(IsOk(table->EnsureSlots(gpu, AsSpan(kAdded))));
    EXPECT_EQ(NumWaits(), num_waits);
    EXPECT_GT(table->num_changes(), num_changes);
    const KeyedGpuRows after = Export(gpu, *table);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < after.size(); ++i) {
      GpuRow want = before[i].second;
      want.bytes = WithAdded(want.bytes, *table);
      EXPECT_EQ(after[i].first, before[i].first);
      EXPECT_TRUE(after[i].second == want) << "key " << after[i].first;
    }
    EXPECT_EQ(Find(gpu, {table.get()}, {Keys(0, 300)})[0].handles, handles);
  }
}

TEST_F(CudaGpuTableSlots, LaterRowsHaveThem) {
  const auto table = FilledTable(gpu, Keys(0, 10));
  ASSERT_TRUE(IsOk(table->EnsureSlots(gpu, AsSpan(kAdded))));
  FindOrInsert(gpu, {table.get()}, {Keys(10, 400)}, {{}, {}, 4});  // and the table grows
  const auto of_slots = MakeGpuTable(gpu, table->config());
  FindOrInsert(gpu, {of_slots.get()}, {Keys(0, 10)}, {{}, {}, 3});
  FindOrInsert(gpu, {of_slots.get()}, {Keys(10, 400)}, {{}, {}, 4});
  EXPECT_EQ(Export(gpu, *table).size(), 400u);
  EXPECT_TRUE(ByKey(Export(gpu, *table)) == ByKey(Export(gpu, *of_slots)));
}

TEST_F(CudaGpuTableSlots, ThoseOfTheTableAreNotAddedAgain) {
  const auto table = FilledTable(gpu, Keys(0, 10));
  const int64_t num_changes = table->num_changes(), row_bytes = table->row_bytes();
  ASSERT_TRUE(IsOk(table->EnsureSlots(gpu, AsSpan(SlotsConfig().layout.slots))));
  EXPECT_EQ(table->num_changes(), num_changes);
  EXPECT_EQ(table->row_bytes(), row_bytes);
  const Slot other_width = {"accumulator", 1, 0.25};
  EXPECT_TRUE(IsInvalid(table->EnsureSlots(gpu, {&other_width, 1}), {"accumulator", "width 3"}));
  EXPECT_EQ(table->row_bytes(), row_bytes);
}

TEST_F(CudaGpuTableSlots, ATableStaysAsItIsWhereWiderRowsDoNotFit) {
  GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 8);
  const auto table = MakeGpuTable(gpu, config);
  FindOrInsert(gpu, {table.get()}, {Keys(0, 400)}, {});
  const KeyedGpuRows before = Export(gpu, *table);
  const int64_t num_changes = table->num_changes();
  EXPECT_TRUE(Fails(table->EnsureSlots(gpu, AsSpan(kAdded)), StatusCode::kResourceExhausted,
                    {"8 buckets", "moment", "max_bytes"}));
  EXPECT_EQ(table->num_changes(), num_changes);
  EXPECT_EQ(table->config().layout.slots.size(), 2u);
  EXPECT_TRUE(Export(gpu, *table) == before);
}

TEST_F(CudaGpuTableSlots, ATableStaysAsItIsWhenMemoryRunsOut) {
  int64_t num_allocations = 0;
  for (bool has_failed = true; has_failed; ++num_allocations) {
    CountingGpu counting;
    const auto table = FilledTable(counting, Keys(0, 300));
    const KeyedGpuRows before = Export(counting, *table);
    const int64_t num_bytes = counting.num_bytes();
    counting.FailAfter(num_allocations);
    const Status status = table->EnsureSlots(counting, AsSpan(kAdded));
    has_failed = counting.has_failed();
    counting.FailAfter(-1);
    EXPECT_EQ(status.ok(), !has_failed);
    if (!has_failed) break;
    EXPECT_TRUE(Fails(status, StatusCode::kResourceExhausted, {"device memory"}));
    EXPECT_TRUE(Export(counting, *table) == before);
    EXPECT_EQ(counting.num_bytes(), num_bytes);
  }
  EXPECT_GT(num_allocations, 3);
}

}  // namespace
}  // namespace fused_embedding
