// Saves of tables above a cold store while others look rows up, which moves these to and fro.

#include <thread>

#include "tests/cpp/cold_tier_testing.h"
#include "tests/cpp/temporary_folder.h"

namespace fused_embedding {
namespace {

constexpr int64_t kNumSavedKeys = 2000;

Ints RandomKeys(int64_t n, Random* random) {
  std::set<int64_t> keys;
  while (static_cast<int64_t>(keys.size()) < n)
    keys.insert(RandomInt(random, 0, kNumSavedKeys - 1));
  return {keys.begin(), keys.end()};
}

class ColdTierSaveTest : public ::testing::Test {
 protected:
  // Few of whose rows are in DRAM, above a store that takes its time.
  std::unique_ptr<EmbeddingTable> MakeTiered() {
    faults_.latency_us = 50;
    TableConfig config = TieredConfig(folder_.path(), 32 << 10);
    config.storage.open = [this](const ColdStoreOptions& options, StorePtr* store) {
      StorePtr inner;
      FE_RETURN_IF_ERROR(MemoryColdStore::Open(options, &inner));
      *store = std::make_unique<FaultyColdStore>(options, std::move(inner), &faults_);
      return Status();
    };
    return MakeTable(config);
  }

  // All rows, while threads call body(random) again and again.
  template <typename Body>
  static TableContents ContentsBeside(const EmbeddingTable& table, int seed, const Body& body) {
    std::atomic<bool> is_done{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        Random random(static_cast<uint64_t>(seed * 2 + t));
        while (!is_done) body(&random);
      });
    }
    const TableContents contents = ContentsOf(table);
    is_done = true;
    for (std::thread& thread : threads) thread.join();
    return contents;
  }

  const TemporaryFolder folder_;
  Faults faults_;
};

// Rows that nobody changes are saved as they are, whoever reads them meanwhile.
TEST_F(ColdTierSaveTest, BesideReaders) {
  const auto tiered = MakeTiered();
  TableConfig config = TieredConfig("");
  config.storage = StorageConfig();
  const auto in_dram = MakeTable(config);
  Random random(5);
  for (int round = 0; round < 80; ++round) {
    const Ints keys = RandomKeys(500, &random);
    Train(in_dram.get(), keys);
    Train(tiered.get(), keys);
    const TableContents saved = ContentsBeside(*tiered, round, [&](Random* of_reader) {
      const Ints read = RandomKeys(50, of_reader);
      EXPECT_TRUE(IsOk(LookUp(tiered.get(), read, {{}, -1, false}).status));
    });
    ASSERT_TRUE(saved == ContentsOf(*in_dram)) << "round " << round;
  }
}

// No row is as it was before the save.
TEST_F(ColdTierSaveTest, BesideTrainers) {
  const auto tiered = MakeTiered();
  Random random(6);
  for (int round = 0; round < 80; ++round) {
    std::map<int64_t, int64_t> frequencies;
    for (const auto& [key, row] : ContentsOf(*tiered).rows) {
      frequencies[key] = HeaderOf(row).frequency;
    }
    const Ints keys = RandomKeys(500, &random);
    Train(tiered.get(), keys);
    for (const int64_t key : keys) ++frequencies[key];
    const TableContents saved = ContentsBeside(*tiered, round, [&](Random* of_trainer) {
      Train(tiered.get(), RandomKeys(50, of_trainer));
    });
    for (const auto& [key, frequency] : frequencies) {
      ASSERT_EQ(saved.rows.count(key), 1u) << "round " << round;
      ASSERT_GE(HeaderOf(saved.rows.at(key)).frequency, frequency) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace fused_embedding
