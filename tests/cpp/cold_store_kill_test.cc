// Processes that are killed while they write: what is left is their last checkpoint, whole.

#include "tests/cpp/cold_store_testing.h"
#include "tests/cpp/killed_process.h"

namespace fused_embedding {
namespace {

constexpr int64_t kNumStoredKeys = 1500, kStoredBytes = 300;

// Round r writes every third key, but erases one in eleven of these.
bool IsOfRound(int64_t key, int64_t round) { return key % 3 == round % 3; }
bool IsErasedIn(int64_t key, int64_t round) { return key % 11 == round % 11; }

Rows RowsAfter(int64_t last_round) {
  Rows rows;
  for (int64_t key = 0; key < kNumStoredKeys; ++key) {
    int64_t round = last_round;
    while (round > 0 && !IsOfRound(key, round)) --round;
    if (round > 0 && !IsErasedIn(key, round)) rows[key] = ValueOf(key, round, kStoredBytes);
  }
  return rows;
}

void WriteRound(int64_t round, ColdStore* store) {
  Rows put;
  std::vector<int64_t> erased;
  for (int64_t key = 0; key < kNumStoredKeys; ++key) {
    if (!IsOfRound(key, round)) continue;
    if (IsErasedIn(key, round)) {
      erased.push_back(key);
    } else {
      put[key] = ValueOf(key, round, kStoredBytes);
    }
  }
  ASSERT_TRUE(IsOk(Put(put, store)));
  ASSERT_TRUE(IsOk(Erase(erased, store)));
}

// "after_7" is the checkpoint after round 7.
constexpr char kPrefix[] = "after_";
std::set<int64_t> RoundsIn(const fs::path& folder) {
  std::set<int64_t> rounds;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_checkpoint = name.rfind(kPrefix, 0) == 0 && entry.path().extension() != ".tmp";
    if (is_checkpoint) rounds.insert(std::stoll(name.substr(sizeof(kPrefix) - 1)));
  }
  return rounds;
}
std::string NameAfter(int64_t round) { return kPrefix + std::to_string(round); }

class ColdStoreKill : public ColdStoreTest {
 protected:
  ColdStoreKill() : ColdStoreTest("rocksdb") {}

  // DISABLED_Writer is killed at a moment drawn at random, after up to two checkpoints.
  void RunAndKill(Random* random) const {
    KilledProcess writer("ColdStoreKill.DISABLED_Writer", Path(""));
    writer.WaitForSigns(RandomInt(random, 1, 3));
    std::this_thread::sleep_for(std::chrono::microseconds(RandomInt(random, 0, 30000)));
    writer.Kill();
  }
};

TEST_F(ColdStoreKill, DISABLED_Writer) {
  const char* folder = FolderToKillIn();
  ASSERT_NE(folder, nullptr) << "run by LeavesTheLastCheckpoint";
  fs::remove(Path(""));  // of this process, which does not come to TearDown
  const std::set<int64_t> rounds = RoundsIn(folder);
  int64_t round = rounds.empty() ? 0 : *rounds.rbegin();
  ColdStoreOptions options = OptionsOf(kStoredBytes);
  options.path = std::string(folder) + "/store";
  if (round > 0) options.checkpoint = folder + NameAfter(round);
  const StorePtr store = Opened(options);
  ASSERT_NE(store, nullptr);
  Sign();
  while (!HasFailure()) {
    WriteRound(++round, store.get());
    EXPECT_EQ(Got({0, 3, 6}, store.get()).count(1), 0u);
    if (round % 2 == 0) {
      EXPECT_TRUE(IsOk(store->Flush()));
    }
    EXPECT_TRUE(IsOk(store->Checkpoint(folder + NameAfter(round))));
    fs::remove_all(folder + NameAfter(round - 2));
    Sign();
  }
}

TEST_F(ColdStoreKill, LeavesTheLastCheckpoint) {
  Random random(28);
  int64_t last = 0;
  int num_advanced = 0;
  const int num_kills = NumKills();
  for (int i = 0; i < num_kills; ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    RunAndKill(&random);
    const std::set<int64_t> rounds = RoundsIn(Path(""));
    const int64_t round = rounds.empty() ? 0 : *rounds.rbegin();
    ASSERT_GE(round, last);
    if (round > last) ++num_advanced;
    last = round;
    // The working folder, as it was left, opens too.
    StorePtr store = Opened(OptionsOf(kStoredBytes, round == 0 ? "" : NameAfter(round)));
    ASSERT_NE(store, nullptr);
    const Rows want = RowsAfter(round);
    ASSERT_TRUE(Scanned(store.get()) == want) << "after round " << round;
    ASSERT_TRUE(Got(KeysOf(want), store.get()) == want) << "after round " << round;
  }
  EXPECT_GE(num_advanced, num_kills / 5) << "the writer never gets to a checkpoint";
  std::printf("{\"killed\": \"a store\", \"kills\": %d, \"checkpoints\": %d}\n", num_kills,
              num_advanced);
}

}  // namespace
}  // namespace fused_embedding
