// Copies between a table in a GPU's memory and one in DRAM.

#include "tests/cpp/cuda_gpu_table_testing.h"
#include "tf_ops/core/table/gpu/training.cu.h"

#ifdef FE_CUDA_EMULATION  // nvcc refuses the vectors of the CPU's index
#include "tf_ops/core/table/gpu/dram_copy.h"

namespace fused_embedding {
namespace {

using CudaGpuTableCopy = GpuTest;

template <typename T>
GpuTableConfig GpuConfig() {
  GpuTableConfig config = TestGpuConfig(GpuEviction::kLru, 16);
  config.layout.value_type = kValueTypeOf<T>;
  config.max_bytes = BytesOfBuckets(config.layout, 16);
  config.min_frequency = 2;
  config.max_count_bytes = 1 << 20;
  return config;
}

template <typename T>
std::unique_ptr<EmbeddingTable> DramTable(AdmissionKind admission = AdmissionKind::kCounter) {
  TableConfig config;
  config.layout.value_type = kValueTypeOf<T>;
  config.layout.dim = 3;
  config.initializer = GpuConfig<T>().initializer;
  config.admission.kind = admission;
  config.admission.min_frequency = admission == AdmissionKind::kCounter ? 2 : 0;
  std::unique_ptr<EmbeddingTable> table;
  EXPECT_TRUE(IsOk(EmbeddingTable::Create(config, &table)));
  return table;
}

// 300 rows of several ages, each slot with numbers of its own, and 100 counts.
template <typename T>
std::unique_ptr<GpuTable> TrainedTable(const GpuExec& gpu) {
  auto table = MakeGpuTable(gpu, GpuConfig<T>());
  std::vector<int64_t> keys;
  for (int64_t key = -100; key < 300; ++key) keys.push_back(key);
  const DeviceKeys all({table.get()}, {keys});
  std::vector<int32_t> counts;
  for (const int64_t key : keys) counts.push_back(key < 0 ? 1 : 2 + static_cast<int32_t>(key) % 3);
  const DeviceArray<int32_t> device_counts(Array<int32_t>::Of(counts));
  const DeviceArray<int64_t> handles(all.size());
  const int64_t step = 5;
  const GpuUses uses = {device_counts.view(), {}, {&step, 1}};
  GpuTrainingPlan plan;
  EXPECT_TRUE(IsOk(PlanGpuTraining(gpu, all.view(), uses, &plan)));
  EXPECT_TRUE(IsOk(RunGpuTraining(gpu, all.view(), uses, plan, {}, {handles.span()})));
  KeyedGpuRows rows = Export(gpu, *table);
  const size_t slots_begin = static_cast<size_t>(table->config().layout.slots_offset() - 16);
  for (auto& [key, row] : rows) {
    const size_t slots_bytes = 4 * (std::is_same_v<T, double> ? 8 : 4);
    for (size_t b = slots_begin; b < slots_begin + slots_bytes; ++b) {
      row.bytes[b] = static_cast<char>(key + static_cast<int64_t>(b));
    }
  }
  Upsert(gpu, {table.get()}, {rows});
  return table;
}

template <typename T>
class CudaGpuTableCopyOf : public GpuTest {};
TYPED_TEST_SUITE(CudaGpuTableCopyOf, ValueTypes);

TYPED_TEST(CudaGpuTableCopyOf, GoesToDramAndBack) {
  const TestGpu gpu;
  const auto trained = TrainedTable<TypeParam>(gpu);
  const auto dram = DramTable<TypeParam>();
  ASSERT_TRUE(IsOk(CopyToDram(gpu, *trained, dram.get())));
  EXPECT_EQ(dram->size(), 300);
  EXPECT_EQ(dram->Statistics().filtered, 100);
  EXPECT_EQ(dram->layout().slots.size(), 2u);
  // By key: rows as the table in DRAM has them, of value, slots and padding.
  std::map<int64_t, GpuRow> want = ByKey(Export(gpu, *trained));
  for (int64_t shard = 0; shard < dram->num_shards(); ++shard) {
    RowLayout layout;
    std::vector<char> rows;
    FilteredKeys filtered;
    ASSERT_TRUE(IsOk(dram->CopyShard(shard, &layout, &rows, &filtered)));
    const size_t row_bytes = static_cast<size_t>(layout.row_bytes());
    for (size_t at = 0; at < rows.size(); at += row_bytes) {
      const RowHeader header = HeaderAt(rows.data() + at);
      const GpuRow& row = want.at(header.key);
      EXPECT_EQ(header.frequency, row.frequency);
      EXPECT_EQ(header.version, row.version);
      const size_t used = static_cast<size_t>(layout.slots_offset() - layout.value_offset() +
                                              4 * layout.slot_number_bytes());
      EXPECT_EQ(std::string(rows.data() + at + 16, used), row.bytes.substr(0, used));
    }
  }
  GpuTableConfig config = GpuConfig<TypeParam>();
  config.layout.slots.clear();  // the copy adds them
  const auto back = MakeGpuTable(gpu, config);
  int64_t num_lost = 0;
  ASSERT_TRUE(IsOk(CopyFromDram(gpu, *dram, back.get(), &num_lost)));
  EXPECT_EQ(num_lost, 0);
  EXPECT_TRUE(ByKey(Export(gpu, *back)) == want);
  const auto counts = ByKey(Export(gpu, *back->counts()));
  EXPECT_EQ(counts.size(), 100u);
  for (const auto& [key, count] : counts) {
    EXPECT_TRUE(key < 0 && count.frequency == 1 && count.version == 5) << "key " << key;
  }
}

TEST_F(CudaGpuTableCopy, SaysHowManyRowsHaveNoRoom) {
  const auto dram = DramTable<float>(AdmissionKind::kAll);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 1000; ++key) keys.push_back(key);
  LookupInput in;
  in.keys = AsSpan(std::as_const(keys));
  LookupOutput out;
  ASSERT_TRUE(IsOk(dram->FindOrInsert(SerialExec(), in, &out)));
  const auto table = MakeGpuTable(gpu, TestGpuConfig(GpuEviction::kLru, 4));
  int64_t num_lost = 0;
  ASSERT_TRUE(IsOk(CopyFromDram(gpu, *dram, table.get(), &num_lost)));
  EXPECT_GE(num_lost, 1000 - 4 * kEntries);
  EXPECT_EQ(static_cast<int64_t>(Export(gpu, *table).size()), 1000 - num_lost);
}

TEST_F(CudaGpuTableCopy, RefusesTablesThatAreNotAlike) {
  const auto trained = TrainedTable<float>(gpu);
  const auto halves = DramTable<Half>();
  EXPECT_TRUE(IsInvalid(CopyToDram(gpu, *trained, halves.get()), {"dim 3", "another type"}));
  EXPECT_TRUE(halves->layout().slots.empty());
  const auto others = DramTable<float>();
  const Slot other = {"other", 2, 0};
  ASSERT_TRUE(IsOk(others->EnsureSlots({&other, 1})));
  EXPECT_TRUE(IsInvalid(CopyToDram(gpu, *trained, others.get()), {"other slots", "its own 2"}));
  EXPECT_EQ(others->layout().slots.size(), 1u);
  int64_t num_lost = 0;
  EXPECT_TRUE(IsInvalid(CopyFromDram(gpu, *others, trained.get(), &num_lost), {"other slots"}));
  EXPECT_EQ(trained->config().layout.slots.size(), 2u);
  EXPECT_EQ(Export(gpu, *trained).size(), 300u);
}

}  // namespace
}  // namespace fused_embedding
#endif
