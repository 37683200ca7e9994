// What the tests of tables share: lookups with vectors, and all content of a table by key.

#ifndef FUSED_EMBEDDING_TESTS_CPP_TABLE_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_TABLE_TESTING_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/table/embedding_table.h"

namespace fused_embedding {

using Ints = std::vector<int64_t>;

// Float, dim 2, first values 0.5.
inline TableConfig TestConfig() {
  TableConfig config;
  config.layout.dim = 2;
  config.initializer.kind = InitializerKind::kConstant;
  config.initializer.a = 0.5;
  config.no_permission_value = -1.0;
  return config;
}

inline std::unique_ptr<EmbeddingTable> MakeTable(const TableConfig& config) {
  std::unique_ptr<EmbeddingTable> table;
  EXPECT_TRUE(IsOk(EmbeddingTable::Create(config, &table)));
  return table;
}

inline Span<const int64_t> View(const Ints& ints) {
  return {ints.data(), static_cast<int64_t>(ints.size())};
}

struct Lookup {
  Status status;
  std::vector<float> values;
  Ints handles;
  int64_t num_refused = 0;
};

struct LookupArgs {
  std::vector<int32_t> counts;
  int64_t step = -1;
  bool insert = true;
};

// Of a table of floats.
inline Lookup LookUp(EmbeddingTable* table, const Ints& keys, const LookupArgs& args = {},
                     const CpuExec& exec = SerialExec()) {
  const int64_t n = static_cast<int64_t>(keys.size());
  const Array<int64_t> key_array = Array<int64_t>::Of(keys);
  const Array<int32_t> counts = Array<int32_t>::Of(args.counts);
  Array<float> values(n * table->config().layout.dim, -77.0f);
  Array<int64_t> handles(n, -77);
  LookupOutput out;
  out.values = reinterpret_cast<char*>(values.data());
  out.handles = handles.data();
  const LookupInput in{key_array.view(), counts.view(), args.step};
  Lookup lookup;
  lookup.status = args.insert ? table->FindOrInsert(exec, in, &out) : table->Find(exec, in, &out);
  lookup.values = values.values();
  lookup.handles = handles.values();
  lookup.num_refused = out.num_refused;
  return lookup;
}

inline Status UpsertFloats(EmbeddingTable* table, const Ints& keys,
                           const std::vector<float>& values) {
  EmbeddingTable::Content content;
  content.keys = View(keys);
  content.values = reinterpret_cast<const char*>(values.data());
  return table->Upsert(SerialExec(), content);
}

inline int64_t EraseKeys(EmbeddingTable* table, const Ints& keys) {
  int64_t num_erased = -1;
  EXPECT_TRUE(IsOk(table->Erase(SerialExec(), View(keys), &num_erased)));
  return num_erased;
}

// Adds one to each number of the values of a table of floats.
inline void AddToRows(const RowLayout& layout, const RowBatch& batch) {
  for (int64_t i = 0; i < batch.n; ++i) {
    if (batch.rows[i] == nullptr) continue;
    float* value = reinterpret_cast<float*>(batch.rows[i] + layout.value_offset());
    for (int64_t d = 0; d < layout.dim; ++d) value[d] += 1.0f;
  }
}

// All that a table holds, by key: rows as bytes, and (frequency, version) of keys not admitted.
struct TableContents {
  std::map<int64_t, std::string> rows;
  std::map<int64_t, std::pair<uint32_t, uint32_t>> filtered;

  bool operator==(const TableContents& other) const {
    return rows == other.rows && filtered == other.filtered;
  }
};

inline RowHeader HeaderOf(const std::string& row) { return HeaderAt(row.data()); }

// An error where the rows of a store below cannot be read.
inline Status ReadContents(const EmbeddingTable& table, TableContents* contents) {
  for (int64_t shard = 0; shard < table.num_shards(); ++shard) {
    RowLayout layout;
    std::vector<char> rows;
    FilteredKeys filtered;
    FE_RETURN_IF_ERROR(table.CopyShard(shard, &layout, &rows, &filtered));
    const size_t row_bytes = static_cast<size_t>(layout.row_bytes());
    EXPECT_EQ(rows.size() % row_bytes, 0u);
    for (size_t begin = 0; begin < rows.size(); begin += row_bytes) {
      const std::string row(rows.data() + begin, row_bytes);
      EXPECT_TRUE(contents->rows.emplace(HeaderOf(row).key, row).second) << "a key has two rows";
    }
    for (size_t i = 0; i < filtered.keys.size(); ++i) {
      contents->filtered[filtered.keys[i]] = {filtered.frequencies[i], filtered.versions[i]};
    }
  }
  return table.CopyCold([&](const RowLayout& layout, Span<const char> rows) {
    for (const char* row = rows.begin(); row != rows.end(); row += layout.row_bytes()) {
      const std::string bytes(row, static_cast<size_t>(layout.row_bytes()));
      EXPECT_TRUE(contents->rows.emplace(HeaderOf(bytes).key, bytes).second) << "twice";
    }
    return Status();
  });
}

inline TableContents ContentsOf(const EmbeddingTable& table) {
  TableContents contents;
  EXPECT_TRUE(IsOk(ReadContents(table, &contents)));
  return contents;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_TABLE_TESTING_H_
