// A ColdStore in memory, and one that fails as it is told to, for tests of what stands on
// ColdStore.

#ifndef FUSED_EMBEDDING_TESTS_CPP_MEMORY_COLD_STORE_H_
#define FUSED_EMBEDDING_TESTS_CPP_MEMORY_COLD_STORE_H_

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tf_ops/core/storage/cold_store.h"
#include "tf_ops/core/storage/store_folder.h"

namespace fused_embedding {

// Rows in a std::map. A checkpoint is one file of keys and values.
class MemoryColdStore final : public ColdStore {
 public:
  static Status Open(const ColdStoreOptions& options, std::unique_ptr<ColdStore>* store) {
    std::unique_ptr<MemoryColdStore> made(new MemoryColdStore(options));
    FE_RETURN_IF_ERROR(made->folder_.Open(options));
    if (!options.checkpoint.empty()) made->ReadRows(made->folder_.data_path() + "/rows");
    *store = std::move(made);
    return Status();
  }

  Status Scan(const Visit& visit) override {
    const Rows rows = Copy();
    std::vector<int64_t> keys;
    std::string values;
    constexpr size_t kRowsPerVisit = 100;
    for (auto row = rows.begin(); row != rows.end();) {
      keys.push_back(row->first);
      values += row->second;
      if (++row != rows.end() && keys.size() < kRowsPerVisit) continue;
      FE_RETURN_IF_ERROR(visit(AsSpan(keys), AsSpan(values)));
      keys.clear();
      values.clear();
    }
    return Status();
  }

  Status Flush() override { return Status(); }

  Status Checkpoint(const std::string& path) override {
    return folder_.Checkpoint(path, [&](const std::string& folder) {
      mkdir(folder.c_str(), 0777);
      std::ofstream file(folder + "/rows", std::ios::binary);
      for (const auto& [key, value] : Copy()) {
        file.write(reinterpret_cast<const char*>(&key), sizeof(key)) << value;
      }
      return Status();
    });
  }

 protected:
  void AddStatistics(ColdStoreStatistics* statistics) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    statistics->memory_bytes = static_cast<int64_t>(rows_.size()) * (value_bytes() + 8);
    statistics->disk_bytes = statistics->memory_bytes;
  }

 private:
  using Rows = std::map<int64_t, std::string>;

  explicit MemoryColdStore(const ColdStoreOptions& options)
      : ColdStore(options), folder_({"memory", ""}) {}

  Status Get(Span<const int64_t> keys, char* values, bool* found) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int64_t i = 0; i < keys.size; ++i) {
      const auto row = rows_.find(keys[i]);
      found[i] = row != rows_.end();
      if (found[i]) std::memcpy(values + i * value_bytes(), row->second.data(), RowSize());
    }
    return Status();
  }
  Status Put(Span<const int64_t> keys, const char* values) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int64_t i = 0; i < keys.size; ++i) {
      rows_[keys[i]] = std::string(values + i * value_bytes(), RowSize());
    }
    return Status();
  }
  Status Remove(Span<const int64_t> keys) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const int64_t key : keys) rows_.erase(key);
    return Status();
  }

  size_t RowSize() const { return static_cast<size_t>(value_bytes()); }
  Rows Copy() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return rows_;
  }
  void ReadRows(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    int64_t key = 0;
    std::string value(RowSize(), '\0');
    while (file.read(reinterpret_cast<char*>(&key), sizeof(key)) &&
           file.read(value.data(), value_bytes())) {
      rows_[key] = value;
    }
  }

  StoreFolder folder_;
  mutable std::mutex mutex_;
  Rows rows_;
};

// Calls that have begun and not ended, by what they do.
struct CallsInFlight {
  std::atomic<int32_t> reads{0}, writes{0}, scans{0};
};

// What a FaultyColdStore does to calls, which may be changed while it is in use.
struct Faults {
  CallsInFlight* in_flight = nullptr;          // counts them there
  std::atomic<int64_t> calls_until_error{-1};  // this many succeed, the next fails; < 0: none
  std::atomic<bool> is_broken{false};          // all fail
  std::atomic<bool> stays_broken{false};       // from an error on
  std::atomic<int64_t> free_bytes{-1};         // puts of more rows than fit fail; < 0: no limit
  std::atomic<int64_t> rows_until_tear{-1};    // of the put that fails, these are written
  std::atomic<int64_t> latency_us{0};          // of each call
  std::atomic<int64_t> full_latency_us{0};     // until a put returns that the disk is full

  // Of a call to the store `path`.
  Status Begin(const char* action, const std::string& path) {
    std::this_thread::sleep_for(std::chrono::microseconds(latency_us));
    const bool fails_now = calls_until_error >= 0 && calls_until_error-- == 0;
    if (fails_now && stays_broken) is_broken = true;
    if (!fails_now && !is_broken) return Status();
    return MakeStatus(StatusCode::kFailedPrecondition, "cannot ", action, " cold store ", path,
                      ": Input/output error");
  }
};

// Passes calls on to another store, or fails as that would.
class FaultyColdStore final : public ColdStore {
 public:
  // `faults` outlives the store.
  FaultyColdStore(const ColdStoreOptions& options, std::unique_ptr<ColdStore> store, Faults* faults)
      : ColdStore(options), store_(std::move(store)), faults_(faults) {}

  Status Scan(const Visit& visit) override {
    const Counted counted(*faults_, &CallsInFlight::scans);
    FE_RETURN_IF_ERROR(Begin("read"));
    return store_->Scan(visit);
  }
  Status Flush() override {
    const Counted counted(*faults_, &CallsInFlight::writes);
    FE_RETURN_IF_ERROR(Begin("flush"));
    return store_->Flush();
  }
  Status Checkpoint(const std::string& path) override {
    const Counted counted(*faults_, &CallsInFlight::scans);
    FE_RETURN_IF_ERROR(Begin("make a checkpoint of"));
    return store_->Checkpoint(path);
  }

 protected:
  void AddStatistics(ColdStoreStatistics* statistics) const override {
    const ColdStoreStatistics of_store = store_->Statistics();
    statistics->num_disk_reads = of_store.num_disk_reads;
    statistics->disk_bytes_read = of_store.disk_bytes_read;
    statistics->disk_bytes = of_store.disk_bytes;
    statistics->memory_bytes = of_store.memory_bytes;
  }

 private:
  // As long as it lives.
  class Counted {
   public:
    using Count = std::atomic<int32_t>;

    Counted(const Faults& faults, Count CallsInFlight::* count)
        : count_(faults.in_flight == nullptr ? nullptr : &(faults.in_flight->*count)) {
      if (count_ != nullptr) ++*count_;
    }
    ~Counted() {
      if (count_ != nullptr) --*count_;
    }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    Count* const count_;
  };

  Status Get(Span<const int64_t> keys, char* values, bool* found) override {
    const Counted counted(*faults_, &CallsInFlight::reads);
    FE_RETURN_IF_ERROR(Begin("read"));
    return store_->MultiGet(keys, {values, keys.size * value_bytes()}, {found, keys.size});
  }
  Status Put(Span<const int64_t> keys, const char* values) override {
    const Counted counted(*faults_, &CallsInFlight::writes);
    Status status = Begin("write");
    const int64_t bytes = keys.size * value_bytes();
    if (status.ok() && faults_->free_bytes >= 0) {
      if (bytes > faults_->free_bytes) {
        std::this_thread::sleep_for(std::chrono::microseconds(faults_->full_latency_us));
        status = ResourceExhausted("cannot write cold store ", path(), ": No space left on device");
      } else {
        faults_->free_bytes -= bytes;
      }
    }
    if (status.ok()) return store_->MultiPut(keys, {values, bytes});
    const int64_t torn = std::min<int64_t>(faults_->rows_until_tear, keys.size);
    if (torn > 0) {
      FE_RETURN_IF_ERROR(store_->MultiPut({keys.data, torn}, {values, torn * value_bytes()}));
    }
    return status;
  }
  Status Remove(Span<const int64_t> keys) override {
    const Counted counted(*faults_, &CallsInFlight::writes);
    FE_RETURN_IF_ERROR(Begin("write"));
    return store_->Erase(keys);
  }

  Status Begin(const char* action) { return faults_->Begin(action, path()); }

  const std::unique_ptr<ColdStore> store_;
  Faults* const faults_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_MEMORY_COLD_STORE_H_
