// Values and metadata by key: what a variable's upsert() and get_frequency() do.

#include "tests/cpp/cuda_gpu_table_model.h"

namespace fused_embedding {
namespace {

using CudaGpuTableValues = GpuTest;
using Ints = std::vector<int64_t>;

std::string BytesOf(const std::vector<float>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}

// Three numbers for each key, other ones for each position.
std::vector<float> ValuesFor(const std::vector<int64_t>& keys) {
  std::vector<float> values;
  for (size_t i = 0; i < 3 * keys.size(); ++i) values.push_back(static_cast<float>(i) + 0.5f);
  return values;
}

Status Upsert(const GpuExec& gpu, GpuTable* table, const std::vector<int64_t>& keys, int64_t step) {
  const DeviceKeys device_keys({table}, {keys});
  const DeviceArray<float> values(Array<float>::Of(ValuesFor(keys)));
  GpuInsertPlan plan;
  FE_RETURN_IF_ERROR(PlanGpuUpsert(gpu, device_keys.view(), &plan));
  const int64_t num_waits = NumWaits();
  const Status status = RunGpuUpsertValues(
      gpu, device_keys.view(), reinterpret_cast<const char*>(values.data()), step, plan);
  EXPECT_EQ(NumWaits(), num_waits) << "a Run waits";
  return status;
}

// As content of a model, which sets whole rows.
KeyedGpuRows WithValues(const GpuTableModel& model, const GpuTableConfig& config,
                        const std::vector<int64_t>& keys, uint32_t step) {
  const std::vector<float> values = ValuesFor(keys);
  const std::vector<char> behind_value = BytesBehindValue(config.layout);
  KeyedGpuRows rows;
  for (size_t i = 0; i < keys.size(); ++i) {
    GpuRow row;
    const auto found = model.rows().find(keys[i]);
    if (found != model.rows().end()) {
      row = found->second;
    } else {
      row.version = step;
      row.bytes = std::string(12, '\0') + std::string(behind_value.begin(), behind_value.end());
      row.bytes.resize((row.bytes.size() + 15) / 16 * 16);
    }
    row.bytes.replace(0, 12, BytesOf({values[3 * i], values[3 * i + 1], values[3 * i + 2]}));
    rows.emplace_back(keys[i], row);
  }
  return rows;
}

std::vector<std::pair<int64_t, int64_t>> Metadata(const GpuExec& gpu, GpuTable* table,
                                                  const std::vector<int64_t>& keys) {
  const DeviceKeys device_keys({table}, {keys});
  const DeviceArray<int64_t> frequencies(device_keys.size()), versions(device_keys.size());
  EXPECT_TRUE(IsOk(ReadGpuMetadata(gpu, device_keys.view(), frequencies.span(), versions.span())));
  const std::vector<int64_t> all_frequencies = frequencies.ToHost().values();
  const std::vector<int64_t> all_versions = versions.ToHost().values();
  std::vector<std::pair<int64_t, int64_t>> metadata;
  for (size_t i = 0; i < keys.size(); ++i) {
    metadata.emplace_back(all_frequencies[i], all_versions[i]);
  }
  return metadata;
}

TEST_F(CudaGpuTableValues, AreSetAndNothingElseIs) {
  for (const GpuEviction eviction : {GpuEviction::kNone, GpuEviction::kLru, GpuEviction::kLfu}) {
    for (const uint64_t seed : OrderSeeds()) {
      ShuffleOrder(seed);
      Random random(seed);
      const GpuTableConfig config =
          TestGpuConfig(eviction, eviction == GpuEviction::kNone ? 64 : 2);
      const auto table = MakeGpuTable(gpu, config);
      GpuTableModel model(config);
      for (uint32_t step = 1; step < 8; ++step) {
        std::vector<int64_t> keys;
        for (int i = 0; i < 60; ++i) keys.push_back(RandomInt(&random, -80, 80));
        std::vector<int64_t> distinct(keys.begin(), keys.begin() + 20);
        std::sort(distinct.begin(), distinct.end());
        distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
        FindOrInsert(gpu, {table.get()}, {distinct}, {{}, {}, step});
        model.Plan(distinct);
        model.FindOrInsert(distinct, nullptr, nullptr, step);

        ASSERT_TRUE(IsOk(Upsert(gpu, table.get(), keys, 100 + step)));
        model.Plan(keys);
        model.Upsert(WithValues(model, config, keys, 100 + step));
        ASSERT_TRUE(ByKey(Export(gpu, *table)) == model.rows()) << "step " << step;
      }
    }
  }
}

TEST_F(CudaGpuTableValues, MetadataIsThatOfTheRows) {
  const auto table = MakeGpuTable(gpu, TestGpuConfig(GpuEviction::kLru, 4));
  FindOrInsert(gpu, {table.get()}, {{5, -7}}, {{3, 1}, {}, 11});
  const std::vector<std::pair<int64_t, int64_t>> want = {{1, 11}, {0, -1}, {3, 11}, {1, 11}};
  EXPECT_EQ(Metadata(gpu, table.get(), {-7, 6, 5, -7}), want);
  EXPECT_EQ(Export(gpu, *table).size(), 2u);
  EXPECT_TRUE(Metadata(gpu, table.get(), {}).empty());
}

TEST_F(CudaGpuTableValues, MissingKeysAreCountedForEachTable) {
  for (const uint64_t seed : OrderSeeds()) {
    ShuffleOrder(seed);
    Random random(seed);
    for (const Ints& sizes : {Ints{0}, Ints{1}, Ints{32}, Ints{5, 0, 700, 31}, Ints{0, 64, 1}}) {
      Ints ends, handles, want;
      int64_t num_keys = 0;
      for (const int64_t size : sizes) {
        ends.push_back(num_keys += size);
        want.push_back(0);
        for (int64_t i = 0; i < size; ++i) {
          handles.push_back(RandomInt(&random, -1, 1));
          want.back() += 2 * (handles.back() < 0);
        }
      }
      DeviceBuffer<unsigned long long> counters;
      ASSERT_TRUE(IsOk(MakeCounters(gpu, static_cast<int64_t>(sizes.size()), &counters)));
      std::vector<unsigned long long*> pointers;
      for (size_t t = 0; t < sizes.size(); ++t) pointers.push_back(counters.data() + t);
      const DeviceArray<int64_t> device_handles(Array<int64_t>::Of(handles));
      for (int lookup = 0; lookup < 2; ++lookup) {
        ASSERT_TRUE(IsOk(CountMissing(gpu, AsSpan(std::as_const(ends)), device_handles.view(),
                                      AsSpan(std::as_const(pointers)))));
      }
      Ints got(sizes.size());
      ASSERT_TRUE(IsOk(ReadCounters(gpu, counters.span(), AsSpan(got))));
      EXPECT_EQ(got, want);
    }
  }
}

TEST_F(CudaGpuTableValues, NoKeysAreNoChange) {
  const auto table = MakeGpuTable(gpu, TestGpuConfig(GpuEviction::kNone, 1));
  ASSERT_TRUE(IsOk(Upsert(gpu, table.get(), {}, 1)));
  EXPECT_TRUE(Export(gpu, *table).empty());
}

TEST_F(CudaGpuTableValues, ErrorsNameWhatIsWrong) {
  const GpuTableConfig config = TestGpuConfig(GpuEviction::kNone, 1);
  const auto table = MakeGpuTable(gpu, config), other = MakeGpuTable(gpu, config);
  ASSERT_TRUE(IsOk(Upsert(gpu, table.get(), KeysOfBucket(config, 0, 0, 64), 1)));
  const auto before = Export(gpu, *table);
  EXPECT_TRUE(Fails(Upsert(gpu, table.get(), {KeyOfBucket(config, 0, 64)}, 2),
                    StatusCode::kResourceExhausted, {"no room for 1", "max_bytes"}));
  EXPECT_TRUE(Export(gpu, *table) == before);

  const DeviceKeys keys({table.get(), other.get()}, {{1}, {2}});
  const DeviceArray<int64_t> numbers(2);
  EXPECT_TRUE(IsInvalid(ReadGpuMetadata(gpu, keys.view(), numbers.span(), numbers.span()),
                        {"one table", "got 2"}));
  const DeviceKeys one({table.get()}, {{1}});
  EXPECT_TRUE(IsInvalid(ReadGpuMetadata(gpu, one.view(), numbers.span(), numbers.span()),
                        {"each of 1 keys", "got 2 and 2"}));
  const GpuInsertPlan of_nothing;
  EXPECT_TRUE(Fails(RunGpuUpsertValues(gpu, one.view(), "", 1, of_nothing),
                    StatusCode::kFailedPrecondition, {"PlanGpuUpsert"}));
}

}  // namespace
}  // namespace fused_embedding
