// What the tests of cold stores share: each implementation by its name, a folder, rows as a map.

#ifndef FUSED_EMBEDDING_TESTS_CPP_COLD_STORE_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_COLD_STORE_TESTING_H_

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/cpp/core_testing.h"
#include "tests/cpp/memory_cold_store.h"
#include "tf_ops/core/storage/cold_store_library.h"

namespace fused_embedding {

namespace fs = std::filesystem;
using StorePtr = std::unique_ptr<ColdStore>;
using Rows = std::map<int64_t, std::string>;

#ifdef FE_ROCKSDB_LIBRARY
inline const char* RocksDbUnderTest() {
  return IsSanitized() ? FE_ROCKSDB_LIBRARY_SANITIZED : FE_ROCKSDB_LIBRARY;
}
#else
inline const char* RocksDbUnderTest() { return nullptr; }
#endif

class ColdStoreTest : public ::testing::Test {
 protected:
  explicit ColdStoreTest(std::string kind) : kind_(std::move(kind)) {}

  void SetUp() override {
    if (kind_ == "rocksdb" && RocksDbUnderTest() == nullptr) GTEST_SKIP() << "needs librocksdb-dev";
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(info->test_suite_name()) + "_" + info->name();
    std::replace(name.begin(), name.end(), '/', '_');
    folder_ = fs::path(::testing::TempDir()) / ("fe_" + std::to_string(getpid()) + "_" + name);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  bool IsRocksDb() const { return kind_ == "rocksdb"; }

  ColdStoreOptions OptionsOf(int64_t value_bytes = 12, const std::string& checkpoint = "") const {
    ColdStoreOptions options;
    options.path = Path("store");
    options.checkpoint = checkpoint.empty() ? "" : Path(checkpoint);
    options.value_bytes = value_bytes;
    options.memory_bytes = int64_t{8} << 20;
    options.num_readers = 4;
    return options;
  }
  Status Open(const ColdStoreOptions& options, StorePtr* store) const {
    if (IsRocksDb()) return OpenColdStore(RocksDbUnderTest(), options, store);
    return MemoryColdStore::Open(options, store);
  }
  StorePtr Opened(const ColdStoreOptions& options) const {
    StorePtr store;
    EXPECT_TRUE(IsOk(Open(options, &store)));
    return store;
  }

 private:
  const std::string kind_;
  fs::path folder_;
};

inline std::string ValueOf(int64_t key, int64_t round, int64_t bytes) {
  Random random(static_cast<uint64_t>(key * 31 + round));
  std::string value(static_cast<size_t>(bytes), '\0');
  for (char& byte : value) byte = static_cast<char>(random());
  return value;
}

inline Status Put(const Rows& rows, ColdStore* store) {
  std::vector<int64_t> keys;
  std::string values;
  for (const auto& [key, value] : rows) {
    keys.push_back(key);
    values += value;
  }
  return store->MultiPut(AsSpan(keys), AsSpan(values));
}

inline Status Erase(const std::vector<int64_t>& keys, ColdStore* store) {
  return store->Erase(AsSpan(keys));
}

// The rows of `keys`, in memory of exactly their size that was something else before.
inline Status Get(const std::vector<int64_t>& keys, ColdStore* store, Rows* rows) {
  const auto n = static_cast<int64_t>(keys.size());
  Array<char> values(n * store->value_bytes(), 'x');
  Array<bool> found(n);
  FE_RETURN_IF_ERROR(store->MultiGet(AsSpan(keys), values.span(), found.span()));
  const std::string bytes = values.bytes();
  const auto row_bytes = static_cast<size_t>(store->value_bytes());
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string value = bytes.substr(i * row_bytes, row_bytes);
    if (found[static_cast<int64_t>(i)]) {
      (*rows)[keys[i]] = value;
    } else {
      EXPECT_EQ(value, std::string(row_bytes, 'x')) << "written for key " << keys[i];
    }
  }
  return Status();
}

inline Rows Got(const std::vector<int64_t>& keys, ColdStore* store) {
  Rows rows;
  EXPECT_TRUE(IsOk(Get(keys, store, &rows)));
  return rows;
}

inline std::vector<int64_t> KeysOf(const Rows& rows) {
  std::vector<int64_t> keys;
  for (const auto& row : rows) keys.push_back(row.first);
  return keys;
}

// All rows, which must come in ascending order of their keys.
inline Status Scan(ColdStore* store, Rows* rows) {
  const auto row_bytes = static_cast<size_t>(store->value_bytes());
  return store->Scan([&](Span<const int64_t> keys, Span<const char> values) {
    EXPECT_GT(keys.size, 0);
    EXPECT_EQ(values.size, keys.size * store->value_bytes());
    const char* value = values.data;
    for (const int64_t key : keys) {
      EXPECT_TRUE(rows->empty() || rows->rbegin()->first < key) << key << " out of order";
      (*rows)[key] = std::string(value, row_bytes);
      value += row_bytes;
    }
    return Status();
  });
}

inline Rows Scanned(ColdStore* store) {
  Rows rows;
  EXPECT_TRUE(IsOk(Scan(store, &rows)));
  return rows;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_COLD_STORE_TESTING_H_
