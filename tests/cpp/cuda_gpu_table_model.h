// A table on a GPU as a map.

#ifndef FUSED_EMBEDDING_TESTS_CPP_CUDA_GPU_TABLE_MODEL_H_
#define FUSED_EMBEDDING_TESTS_CPP_CUDA_GPU_TABLE_MODEL_H_

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/cuda_gpu_table_testing.h"
#include "tf_ops/core/table/initializer.h"
#include "tf_ops/core/table/value_bytes.h"

namespace fused_embedding {

// A table as one would write it down.
class GpuTableModel {
 public:
  explicit GpuTableModel(const GpuTableConfig& config)
      : config_(config), num_buckets_(config.min_buckets) {}

  const std::map<int64_t, GpuRow>& rows() const { return rows_; }
  int64_t num_buckets() const { return num_buckets_; }
  int64_t num_refused() const { return num_refused_; }

  std::string FirstValue(int64_t key) const {
    std::string value(static_cast<size_t>(config_.layout.value_bytes()), '\0');
    char* const bytes = value.data();
    Initialize(config_.initializer, config_.layout, &key, &bytes, 1);
    return value;
  }

  std::string Find(int64_t key) const {
    const auto row = rows_.find(key);
    return row == rows_.end() ? FirstValue(key) : ValueOf(row->second);
  }

  // Doubles as PlanGpuInsert does. Returns false for a batch that a table without eviction refuses.
  bool Plan(const std::vector<int64_t>& keys) {
    while (NumOver(keys) > 0) {
      if (BytesOfBuckets(config_.layout, 2 * num_buckets_) > config_.max_bytes) {
        return config_.eviction != GpuEviction::kNone;
      }
      num_buckets_ *= 2;
    }
    return true;
  }

  // The value that each key reads, after Plan.
  std::vector<std::string> FindOrInsert(const std::vector<int64_t>& keys, const int32_t* counts,
                                        const uint64_t* scores, uint32_t step) {
    StartBatch();
    const auto use = [&](size_t i) {
      GpuRow& row = rows_.at(keys[i]);
      row.frequency += static_cast<uint32_t>(counts ? counts[i] : 1);
      row.version = step;
      row.score = Score(row, scores ? scores[i] : 0);
    };
    std::vector<bool> is_missing;
    for (size_t i = 0; i < keys.size(); ++i) {
      is_missing.push_back(rows_.count(keys[i]) == 0);
      if (!is_missing[i]) pinned_.insert(keys[i]), use(i);
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!is_missing[i]) continue;
      if (rows_.count(keys[i]) > 0 || Insert(keys[i])) use(i);
    }
    std::vector<std::string> values;
    for (const int64_t key : keys) {
      values.push_back(rows_.count(key) > 0 ? ValueOf(rows_.at(key))
                                            : std::string(FirstValue(key).size(), '\0'));
    }
    return values;
  }

  void Upsert(const KeyedGpuRows& content) {
    StartBatch();
    std::set<int64_t> is_set;
    const auto set = [&](const auto& keyed) {
      if (!is_set.insert(keyed.first).second) return;
      GpuRow row = keyed.second;
      row.score = Score(row, row.score);
      rows_.at(keyed.first) = row;
    };
    std::vector<size_t> missing;
    for (size_t i = content.size(); i-- > 0;) {
      if (rows_.count(content[i].first) == 0) {
        missing.push_back(i);
      } else {
        pinned_.insert(content[i].first);
        set(content[i]);
      }
    }
    for (const size_t i : missing) {
      const int64_t key = content[i].first;
      if (rows_.count(key) > 0 || Insert(key)) set(content[i]);
    }
  }

  bool Erase(int64_t key) { return rows_.erase(key) > 0; }

  // Of the last batch, by key.
  const std::map<int64_t, GpuRow>& evicted() const { return evicted_; }

 private:
  int64_t BucketOf(int64_t key) const {
    const uint64_t hash = Mix64(static_cast<uint64_t>(key) ^ config_.hash_key);
    return static_cast<int64_t>(hash % static_cast<uint64_t>(num_buckets_));
  }
  std::string ValueOf(const GpuRow& row) const {
    return row.bytes.substr(0, static_cast<size_t>(config_.layout.value_bytes()));
  }
  uint64_t Score(const GpuRow& row, uint64_t given) const {
    const uint64_t frequency = row.frequency, version = row.version;
    switch (config_.eviction) {
      case GpuEviction::kNone:
        return 0;
      case GpuEviction::kLru:
        return (version << 32) + frequency;
      case GpuEviction::kLfu:
        return (frequency << 32) + version;
      case GpuEviction::kGiven:
        return given;
    }
    return 0;
  }

  std::vector<int64_t> KeysOfBucket(int64_t bucket) const {
    std::vector<int64_t> keys;
    for (const auto& [key, row] : rows_) {
      if (BucketOf(key) == bucket) keys.push_back(key);
    }
    return keys;
  }

  int64_t NumOver(const std::vector<int64_t>& keys) const {
    std::map<int64_t, int64_t> num_rows;
    for (const auto& [key, row] : rows_) ++num_rows[BucketOf(key)];
    int64_t num_over = 0;
    for (const int64_t key : keys) {
      if (rows_.count(key) == 0) num_over += ++num_rows[BucketOf(key)] > kEntries;
    }
    return num_over;
  }

  void StartBatch() {
    pinned_.clear();
    evicted_.clear();
    num_refused_ = 0;
  }

  // Returns false for a key that the table refuses.
  bool Insert(int64_t key) {
    const std::vector<int64_t> neighbours = KeysOfBucket(BucketOf(key));
    if (static_cast<int64_t>(neighbours.size()) == kEntries) {
      std::set<std::pair<uint64_t, int64_t>> victims;
      for (const int64_t other : neighbours) {
        if (pinned_.count(other) == 0) victims.emplace(rows_.at(other).score, other);
      }
      if (victims.empty()) {
        ++num_refused_;
        return false;
      }
      const int64_t victim = victims.begin()->second;
      evicted_[victim] = rows_.at(victim);
      rows_.erase(victim);
    }
    const std::vector<char> behind_value = BytesBehindValue(config_.layout);
    GpuRow row;
    row.bytes = FirstValue(key) + std::string(behind_value.begin(), behind_value.end());
    row.bytes.resize((row.bytes.size() + 15) / 16 * 16);
    rows_[key] = row;
    pinned_.insert(key);
    return true;
  }

  GpuTableConfig config_;
  int64_t num_buckets_;
  std::map<int64_t, GpuRow> rows_, evicted_;
  std::set<int64_t> pinned_;
  int64_t num_refused_ = 0;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_CUDA_GPU_TABLE_MODEL_H_
