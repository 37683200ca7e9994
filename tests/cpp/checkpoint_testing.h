// What the tests of checkpoints share: tables with some content, that content by key and name of
// the slot, and a folder.

#ifndef FUSED_EMBEDDING_TESTS_CPP_CHECKPOINT_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_CHECKPOINT_TESTING_H_

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tests/cpp/table_testing.h"
#include "tf_ops/core/checkpoint/checkpoint.h"

namespace fused_embedding {

namespace fs = std::filesystem;
using TablePtr = std::unique_ptr<EmbeddingTable>;

const Slot kAccumulator = {"Adagrad/accumulator", 3, 0.1};
const Slot kNorm = {"RowWise/norm", 1, 0.25};
const Slot kMomentum = {"Momentum/momentum", 3, 0};

inline TableConfig ConfigOf(int64_t dim = 3, ValueType type = ValueType::kFloat) {
  TableConfig config;
  config.layout.dim = dim;
  config.layout.value_type = type;
  config.initializer.kind = InitializerKind::kUniform;
  config.initializer.a = -1;
  config.initializer.b = 1;
  config.initializer.seed = 17;
  config.num_shards = 4;
  return config;
}

inline void AddSlots(std::vector<Slot> slots, EmbeddingTable* table) {
  EXPECT_TRUE(IsOk(table->EnsureSlots({slots.data(), static_cast<int64_t>(slots.size())})));
}

// A training lookup of keys, `count` times each.
inline void Train(const std::vector<int64_t>& keys, int32_t count, int64_t step,
                  EmbeddingTable* table) {
  std::vector<char> values(keys.size() * static_cast<size_t>(table->layout().value_bytes()));
  const std::vector<int32_t> counts(keys.size(), count);
  const auto n = static_cast<int64_t>(keys.size());
  LookupOutput out;
  out.values = values.data();
  EXPECT_TRUE(
      IsOk(table->FindOrInsert(SerialExec(), {{keys.data(), n}, {counts.data(), n}, step}, &out)));
}

// Fills the values and slots of these rows with bytes at random; any bits are legal.
inline void Scramble(const std::vector<int64_t>& keys, Random* random, EmbeddingTable* table) {
  const auto body = [&](const RowLayout& layout, const RowBatch& batch) {
    for (int64_t i = 0; i < batch.n; ++i) {
      if (batch.rows[i] == nullptr) continue;
      const int64_t slot_bytes = layout.slot_width() * layout.slot_number_bytes();
      for (int64_t b = 0; b < layout.value_bytes(); ++b) {
        batch.rows[i][layout.value_offset() + b] = static_cast<char>((*random)());
      }
      for (int64_t b = 0; b < slot_bytes; ++b) {
        batch.rows[i][layout.slots_offset() + b] = static_cast<char>((*random)());
      }
    }
  };
  EXPECT_TRUE(IsOk(
      table->ForEachRow(SerialExec(), {keys.data(), static_cast<int64_t>(keys.size())}, {}, body)));
}

inline std::vector<int64_t> RandomKeys(int64_t n, Random* random) {
  std::set<int64_t> keys = {0, -1, kInt64Min, kInt64Max};
  while (static_cast<int64_t>(keys.size()) < n) {
    keys.insert(RandomBool(random) ? RandomInt(random, -5000, 5000)
                                   : static_cast<int64_t>((*random)()));
  }
  return {keys.begin(), keys.end()};
}

// Everything of a row: header, value and each slot under its name.
using RowContent = std::map<std::string, std::string>;
struct Content {
  std::map<int64_t, RowContent> rows;
  std::map<int64_t, std::pair<uint32_t, uint32_t>> filtered;

  bool operator==(const Content& other) const {
    return rows == other.rows && filtered == other.filtered;
  }
  bool operator!=(const Content& other) const { return !(*this == other); }
};

inline void Collect(const EmbeddingTable& table, Content* content) {
  for (int64_t shard = 0; shard < table.num_shards(); ++shard) {
    RowLayout layout;
    std::vector<char> rows;
    FilteredKeys filtered;
    ASSERT_TRUE(IsOk(table.CopyShard(shard, &layout, &rows, &filtered)));
    for (size_t row = 0; row < rows.size(); row += static_cast<size_t>(layout.row_bytes())) {
      const char* bytes = rows.data() + row;
      RowHeader header;
      std::memcpy(&header, bytes, sizeof(header));
      RowContent& into = content->rows[header.key];
      EXPECT_TRUE(into.empty()) << "key " << header.key << " twice";
      into["header"] = std::string(bytes, sizeof(header));
      into["value"] =
          std::string(bytes + layout.value_offset(), static_cast<size_t>(layout.value_bytes()));
      int64_t offset = layout.slots_offset();
      for (const Slot& slot : layout.slots) {
        const int64_t slot_bytes = slot.width * layout.slot_number_bytes();
        into[slot.name] = std::string(bytes + offset, static_cast<size_t>(slot_bytes));
        offset += slot_bytes;
      }
    }
    for (size_t i = 0; i < filtered.keys.size(); ++i) {
      EXPECT_EQ(content->filtered.count(filtered.keys[i]), 0u) << filtered.keys[i] << " twice";
      content->filtered[filtered.keys[i]] = {filtered.frequencies[i], filtered.versions[i]};
    }
  }
}

inline Content ContentOf(const EmbeddingTable& table) {
  Content content;
  Collect(table, &content);
  return content;
}

inline std::vector<float> FloatsOf(const std::string& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(info->test_suite_name()) + "_" + info->name();
    std::replace(name.begin(), name.end(), '/', '_');
    folder_ = fs::path(::testing::TempDir()) / ("fe_" + std::to_string(getpid()) + "_" + name);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  // Saves, and checks that only the file itself is left.
  std::string Saved(const EmbeddingTable& table, const std::string& name = "table") {
    EXPECT_TRUE(IsOk(SaveTable(table, Path(name))));
    for (const std::string& file : Files()) EXPECT_EQ(file.find(".tmp"), std::string::npos) << file;
    return Path(name);
  }

  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  static Status Restore(const std::vector<std::string>& paths, EmbeddingTable* table,
                        const PartitionFilter& filter = {}, std::string* warning = nullptr) {
    return RestoreTable(SerialExec(), {AsSpan(paths), 1}, filter, table, warning);
  }

  static std::string ReadFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void WriteFile(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

 private:
  fs::path folder_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_CHECKPOINT_TESTING_H_
