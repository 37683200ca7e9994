// What the tests of tables on a GPU share: calls with arrays of the host, and content by key.

#ifndef FUSED_EMBEDDING_TESTS_CPP_CUDA_GPU_TABLE_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_CUDA_GPU_TABLE_TESTING_H_

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/cpp/cuda_testing.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/table/gpu/gpu_table.h"

namespace fused_embedding {

// Counts the memory of a TestGpu, and has none for one allocation.
class CountingGpu final : public GpuExec {
 public:
  CUstream_st* stream() const override { return gpu_.stream(); }
  int num_multiprocessors() const override { return gpu_.num_multiprocessors(); }
  void* Allocate(int64_t bytes) const override {
    if (num_left_-- == 0) return nullptr;
    void* memory = gpu_.Allocate(bytes);
    sizes_[memory] = bytes;
    num_bytes_ += bytes;
    return memory;
  }
  void Free(void* memory) const override {
    num_bytes_ -= sizes_.at(memory);
    sizes_.erase(memory);
    gpu_.Free(memory);
  }

  int64_t num_bytes() const { return num_bytes_; }
  // The allocation after `num_left` others fails; < 0: none.
  void FailAfter(int64_t num_left) { num_left_ = num_left; }
  bool has_failed() const { return num_left_ < 0; }

 private:
  TestGpu gpu_;
  mutable std::map<void*, int64_t> sizes_;
  mutable int64_t num_bytes_ = 0, num_left_ = -1;
};

// A row's entry, and the row as bytes: value and slots.
struct GpuRow {
  uint32_t frequency = 0, version = 0;
  uint64_t score = 0;
  std::string bytes;

  bool operator==(const GpuRow& other) const {
    return std::tie(frequency, version, score, bytes) ==
           std::tie(other.frequency, other.version, other.score, other.bytes);
  }
};
using KeyedGpuRows = std::vector<std::pair<int64_t, GpuRow>>;

// Arrays for rows of one table.
class RowArrays {
 public:
  RowArrays(int64_t num_rows, int64_t row_bytes)
      : keys_(num_rows),
        frequencies_(num_rows),
        versions_(num_rows),
        scores_(num_rows),
        rows_(num_rows * row_bytes),
        row_bytes_(row_bytes) {}

  GpuRows rows() const {
    return {keys_.data(), frequencies_.data(), versions_.data(), scores_.data(), rows_.data()};
  }
  KeyedGpuRows First(int64_t num_rows) const {
    const Array<int64_t> keys = keys_.ToHost();
    const Array<uint32_t> frequencies = frequencies_.ToHost(), versions = versions_.ToHost();
    const Array<uint64_t> scores = scores_.ToHost();
    const std::string bytes = rows_.ToHost().bytes();
    EXPECT_GE(num_rows, 0);
    EXPECT_LE(num_rows, keys.size());
    KeyedGpuRows rows;
    for (int64_t i = 0; i < std::min(num_rows, keys.size()); ++i) {
      const GpuRow row = {
          frequencies[i], versions[i], scores[i],
          bytes.substr(static_cast<size_t>(i * row_bytes_), static_cast<size_t>(row_bytes_))};
      rows.emplace_back(keys[i], row);
    }
    return rows;
  }

 private:
  DeviceArray<int64_t> keys_;
  DeviceArray<uint32_t> frequencies_, versions_;
  DeviceArray<uint64_t> scores_;
  DeviceArray<char> rows_;
  int64_t row_bytes_;
};

// The rows of a table in the order of its buckets, exported `buckets_at_once`.
inline KeyedGpuRows Export(const GpuExec& gpu, const GpuTable& table, int64_t buckets_at_once = 3) {
  KeyedGpuRows all;
  for (int64_t begin = 0; begin < table.num_buckets(); begin += buckets_at_once) {
    GpuExportPlan plan;
    const int64_t end = std::min(begin + buckets_at_once, table.num_buckets());
    const int64_t num_waits = NumWaits();
    EXPECT_TRUE(IsOk(PlanGpuExport(gpu, table, begin, end, &plan)));
    const RowArrays arrays(plan.num_rows, table.row_bytes());
    EXPECT_TRUE(IsOk(RunGpuExport(gpu, table, plan, arrays.rows())));
    EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
    const KeyedGpuRows rows = arrays.First(plan.num_rows);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

// The keys of a call, one list for each table.
using KeyLists = std::vector<std::vector<int64_t>>;

class DeviceKeys {
 public:
  DeviceKeys(const std::vector<GpuTable*>& tables, const KeyLists& lists) : tables_(tables) {
    std::vector<int64_t> keys;
    for (const std::vector<int64_t>& list : lists) {
      keys.insert(keys.end(), list.begin(), list.end());
      ends_.push_back(static_cast<int64_t>(keys.size()));
    }
    keys_ = DeviceArray<int64_t>(Array<int64_t>::Of(keys));
  }

  int64_t size() const { return keys_.size(); }
  GpuTableKeys view() const { return {AsSpan(tables_), AsSpan(ends_), keys_.view()}; }

 private:
  std::vector<GpuTable*> tables_;
  std::vector<int64_t> ends_;
  DeviceArray<int64_t> keys_;
};

// What a call of one table gave.
struct GpuLookup {
  std::vector<int64_t> handles;
  std::vector<std::string> values;
  KeyedGpuRows evicted;

  bool operator==(const GpuLookup& other) const {
    return handles == other.handles && values == other.values && evicted == other.evicted;
  }
};

struct GpuUseLists {
  std::vector<int32_t> counts;   // of all keys; empty: one each
  std::vector<uint64_t> scores;  // of all keys, or empty
  int64_t step = 0;              // of table 0; each table has a step of its own

  int64_t StepOf(size_t table) const { return step + 100 * static_cast<int64_t>(table); }
  std::vector<int64_t> StepsOf(size_t num_tables) const {
    std::vector<int64_t> steps;
    for (size_t t = 0; t < num_tables; ++t) steps.push_back(StepOf(t));
    return steps;
  }
};

class Lookups {
 public:
  Lookups(const std::vector<GpuTable*>& tables, const KeyLists& lists) {
    int64_t num_keys = 0;
    for (size_t t = 0; t < tables.size(); ++t) {
      const int64_t n = static_cast<int64_t>(lists[t].size());
      value_bytes_.push_back(tables[t]->config().layout.value_bytes());
      values_.emplace_back(n * value_bytes_.back());
      pointers_.push_back(values_.back().data());
      sizes_.push_back(n);
      num_keys += n;
    }
    handles_ = DeviceArray<int64_t>(num_keys);
  }

  GpuLookupOutput out() const { return {handles_.span(), AsSpan(pointers_)}; }

  std::vector<GpuLookup> ToHost() const {
    std::vector<GpuLookup> lookups(values_.size());
    const std::vector<int64_t> handles = handles_.ToHost().values();
    int64_t begin = 0;
    for (size_t t = 0; t < values_.size(); ++t) {
      lookups[t].handles.assign(handles.begin() + begin, handles.begin() + begin + sizes_[t]);
      begin += sizes_[t];
      const std::string bytes = values_[t].ToHost().bytes();
      for (int64_t i = 0; i < sizes_[t]; ++i) {
        lookups[t].values.push_back(bytes.substr(static_cast<size_t>(i * value_bytes_[t]),
                                                 static_cast<size_t>(value_bytes_[t])));
      }
    }
    return lookups;
  }

 private:
  std::vector<int64_t> value_bytes_, sizes_;
  std::vector<DeviceArray<char>> values_;
  std::vector<char*> pointers_;
  DeviceArray<int64_t> handles_;
};

inline std::vector<GpuLookup> Find(const GpuExec& gpu, const std::vector<GpuTable*>& tables,
                                   const KeyLists& lists) {
  const DeviceKeys keys(tables, lists);
  const Lookups lookups(tables, lists);
  const int64_t num_waits = NumWaits();
  EXPECT_TRUE(IsOk(FindInGpuTables(gpu, keys.view(), lookups.out())));
  EXPECT_EQ(NumWaits(), num_waits);
  return lookups.ToHost();
}

// Where the rows that a plan evicts go.
class EvictedArrays {
 public:
  EvictedArrays(const std::vector<GpuTable*>& tables, const GpuInsertPlan& plan)
      : num_rows_(static_cast<int64_t>(tables.size())) {
    for (size_t t = 0; t < tables.size(); ++t) {
      arrays_.emplace_back(plan.num_evicted[t], tables[t]->row_bytes());
      pointers_.push_back(arrays_.back().rows());
    }
  }

  GpuEvicted out() const { return {AsSpan(pointers_), num_rows_.span()}; }
  KeyedGpuRows OfTable(size_t t) const {
    return arrays_[t].First(num_rows_.ToHost()[static_cast<int64_t>(t)]);
  }

 private:
  std::vector<RowArrays> arrays_;
  std::vector<GpuRows> pointers_;
  DeviceArray<int32_t> num_rows_;
};

// FindOrInsert of a batch that fits; `num_refused` may be null.
inline std::vector<GpuLookup> FindOrInsert(const GpuExec& gpu, const std::vector<GpuTable*>& tables,
                                           const KeyLists& lists, const GpuUseLists& uses,
                                           int64_t* num_refused = nullptr) {
  const DeviceKeys keys(tables, lists);
  const DeviceArray<int32_t> counts(Array<int32_t>::Of(uses.counts));
  const DeviceArray<uint64_t> scores(Array<uint64_t>::Of(uses.scores));
  const Lookups lookups(tables, lists);
  GpuInsertPlan plan;
  EXPECT_TRUE(IsOk(PlanGpuInsert(gpu, keys.view(), &plan)));
  if (plan.num_evicted.size() != tables.size()) return lookups.ToHost();
  if (num_refused != nullptr) *num_refused = plan.num_refused;
  const EvictedArrays evicted(tables, plan);
  const std::vector<int64_t> steps = uses.StepsOf(tables.size());
  const int64_t num_waits = NumWaits();
  EXPECT_TRUE(
      IsOk(RunGpuFindOrInsert(gpu, keys.view(), {counts.view(), scores.view(), AsSpan(steps)}, plan,
                              evicted.out(), lookups.out())));
  EXPECT_EQ(NumWaits(), num_waits) << "a Run waits";
  std::vector<GpuLookup> got = lookups.ToHost();
  for (size_t t = 0; t < tables.size(); ++t) got[t].evicted = evicted.OfTable(t);
  return got;
}

// Upsert of rows, whose keys are those of the lists.
inline std::vector<KeyedGpuRows> Upsert(const GpuExec& gpu, const std::vector<GpuTable*>& tables,
                                        const std::vector<KeyedGpuRows>& rows) {
  KeyLists lists;
  std::vector<uint32_t> frequencies, versions;
  std::vector<uint64_t> scores;
  std::vector<DeviceArray<char>> bytes;
  std::vector<const char*> pointers;
  for (const KeyedGpuRows& of_table : rows) {
    lists.emplace_back();
    std::string joined;
    for (const auto& [key, row] : of_table) {
      lists.back().push_back(key);
      frequencies.push_back(row.frequency);
      versions.push_back(row.version);
      scores.push_back(row.score);
      joined += row.bytes;
    }
    bytes.emplace_back(Array<char>::Of(joined));
    pointers.push_back(bytes.back().data());
  }
  const DeviceKeys keys(tables, lists);
  const DeviceArray<uint32_t> device_frequencies(Array<uint32_t>::Of(frequencies));
  const DeviceArray<uint32_t> device_versions(Array<uint32_t>::Of(versions));
  const DeviceArray<uint64_t> device_scores(Array<uint64_t>::Of(scores));
  GpuInsertPlan plan;
  EXPECT_TRUE(IsOk(PlanGpuUpsert(gpu, keys.view(), &plan)));
  std::vector<KeyedGpuRows> evicted(tables.size());
  if (plan.num_evicted.size() != tables.size()) return evicted;
  const EvictedArrays arrays(tables, plan);
  EXPECT_TRUE(IsOk(RunGpuUpsert(
      gpu, keys.view(),
      {device_frequencies.view(), device_versions.view(), device_scores.view(), AsSpan(pointers)},
      plan, arrays.out())));
  for (size_t t = 0; t < tables.size(); ++t) evicted[t] = arrays.OfTable(t);
  return evicted;
}

inline std::vector<bool> Erase(const GpuExec& gpu, const std::vector<GpuTable*>& tables,
                               const KeyLists& lists) {
  const DeviceKeys keys(tables, lists);
  const DeviceArray<bool> is_erased(keys.size());
  const int64_t num_waits = NumWaits();
  EXPECT_TRUE(IsOk(EraseFromGpuTables(gpu, keys.view(), is_erased.span())));
  EXPECT_EQ(NumWaits(), num_waits);
  const Array<bool> erased = is_erased.ToHost();
  std::vector<bool> result;
  for (int64_t i = 0; i < erased.size(); ++i) result.push_back(erased[i]);
  return result;
}

inline std::unique_ptr<GpuTable> MakeGpuTable(const GpuExec& gpu, const GpuTableConfig& config) {
  std::unique_ptr<GpuTable> table;
  EXPECT_TRUE(IsOk(GpuTable::Create(gpu, config, &table)));
  return table;
}

// Bytes of so many buckets of a table with this layout.
inline int64_t BytesOfBuckets(const RowLayout& layout, int64_t num_buckets) {
  const int64_t row_bytes = (layout.row_bytes() - layout.value_offset() + 15) / 16 * 16;
  return num_buckets * kEntries * (1 + 8 + 8 + 4 + 4 + row_bytes);
}

// Float, dim 3, a slot of 3 numbers and one of 1; as many buckets as max_buckets.
inline GpuTableConfig TestGpuConfig(GpuEviction eviction, int64_t max_buckets) {
  GpuTableConfig config;
  config.layout.dim = 3;
  config.layout.slots = {{"accumulator", 3, 0.25}, {"power", 1, -1.0}};
  config.initializer = {InitializerKind::kUniform, -1.0, 1.0, 7, {}};
  config.eviction = eviction;
  config.max_bytes = BytesOfBuckets(config.layout, max_buckets);
  config.hash_key = 0x1234567;
  return config;
}

// A key of bucket `bucket` of a table with up to 2^32 buckets; different for each `number`.
inline int64_t KeyOfBucket(const GpuTableConfig& config, uint64_t bucket, uint64_t number) {
  return static_cast<int64_t>(InverseMix64(number << 32 | bucket) ^ config.hash_key);
}

inline std::vector<int64_t> KeysOfBucket(const GpuTableConfig& config, uint64_t bucket,
                                         uint64_t first, uint64_t size) {
  std::vector<int64_t> keys;
  for (uint64_t i = first; i < first + size; ++i) keys.push_back(KeyOfBucket(config, bucket, i));
  return keys;
}

inline std::map<int64_t, GpuRow> ByKey(const KeyedGpuRows& rows) {
  const std::map<int64_t, GpuRow> by_key(rows.begin(), rows.end());
  EXPECT_EQ(by_key.size(), rows.size()) << "a key has two rows";
  return by_key;
}

inline std::vector<int64_t> KeysOf(const KeyedGpuRows& rows) {
  std::vector<int64_t> keys;
  for (const auto& [key, row] : rows) keys.push_back(key);
  return keys;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_CUDA_GPU_TABLE_TESTING_H_
