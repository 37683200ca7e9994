// What tests of tables above a cold store share.

#ifndef FUSED_EMBEDDING_TESTS_CPP_COLD_TIER_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_COLD_TIER_TESTING_H_

#include <memory>
#include <string>

#include "tests/cpp/cold_store_testing.h"
#include "tests/cpp/table_testing.h"

namespace fused_embedding {

constexpr int64_t kStoreBytes = int64_t{4} << 20;  // of the least DRAM that a tier takes

// Dim 8, some of whose 4 shards hold a few hundred rows each.
inline TableConfig TieredConfig(const std::string& folder, int64_t row_budget_bytes = 128 << 10) {
  TableConfig config = TestConfig();
  config.layout.dim = 8;
  config.num_shards = 4;
  config.storage.open = MemoryColdStore::Open;
  config.storage.path = folder;
  config.storage.dram_bytes = kStoreBytes + row_budget_bytes;
  return config;
}

inline Ints KeyRange(int64_t begin, int64_t end) {
  Ints keys;
  for (int64_t key = begin; key < end; ++key) keys.push_back(key);
  return keys;
}

inline void Train(EmbeddingTable* table, const Ints& keys) {
  const Lookup lookup = LookUp(table, keys);
  ASSERT_TRUE(IsOk(lookup.status));
  ASSERT_TRUE(IsOk(table->ForEachRow(SerialExec(), View(keys), View(lookup.handles), AddToRows)));
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_COLD_TIER_TESTING_H_
