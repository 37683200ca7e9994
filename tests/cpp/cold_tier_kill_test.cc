// Processes that are killed while they train a table above RocksDB: what is left is their last
// save, whole, and a folder in which the next one trains on.

#include <sys/mman.h>

#include <thread>

#include "tests/cpp/cold_store_testing.h"
#include "tests/cpp/killed_process.h"
#include "tests/cpp/table_testing.h"
#include "tf_ops/core/checkpoint/checkpoint.h"
#include "tf_ops/core/storage/table_folder.h"

namespace fused_embedding {
namespace {

constexpr int64_t kNumTierKeys = 6000, kHotKeys = 1000, kBatch = 400;
constexpr int kThreads = 3, kRoundsOfASave = 2;
constexpr char kSavePrefix[] = "save_";

// --- What is trained ---

// Each number of value and slot says how often its key came.
void Update(const RowLayout& layout, const RowBatch& batch) {
  for (int64_t i = 0; i < batch.n; ++i) {
    if (batch.rows[i] == nullptr) continue;
    RowHeader header;
    std::memcpy(&header, batch.rows[i], sizeof(header));
    auto* value = reinterpret_cast<float*>(batch.rows[i] + layout.value_offset());
    auto* slot = reinterpret_cast<float*>(batch.rows[i] + layout.slots_offset());
    for (int64_t d = 0; d < layout.dim; ++d) {
      value[d] += static_cast<float>(header.key % 97 + d);
      slot[d] += 1.0f;
    }
  }
}

Ints BatchOf(int64_t round, int64_t thread) {
  Random random(static_cast<uint64_t>(round * 100 + thread));
  std::set<int64_t> keys;
  while (static_cast<int64_t>(keys.size()) < kBatch) {
    keys.insert(RandomInt(&random, 0, RandomBool(&random) ? kHotKeys : kNumTierKeys - 1));
  }
  return {keys.begin(), keys.end()};
}

Ints KeysErasedIn(int64_t round) {
  Ints keys;
  for (int64_t key = round % 16; key < kNumTierKeys; key += 16) keys.push_back(key);
  return keys;
}

template <typename Body>
void InThreads(const Body& body) {
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { body(t); });
  for (std::thread& thread : threads) thread.join();
}

// What the threads do in a round gives the same in any order: a table's content is a function of
// its rounds alone.
void TrainRound(int64_t round, EmbeddingTable* table) {
  InThreads([&](int64_t thread) {
    const Ints keys = BatchOf(round, thread);
    const Lookup lookup = LookUp(table, keys, {{}, round});
    EXPECT_TRUE(IsOk(lookup.status));
    EXPECT_TRUE(IsOk(table->ForEachRow(SerialExec(), View(keys), View(lookup.handles), Update)));
    EXPECT_TRUE(IsOk(table->Prefetch(SerialExec(), View(BatchOf(round + 1, thread)))));
  });
  const Ints erased = KeysErasedIn(round);
  InThreads([&](int64_t thread) {
    if (thread > 0) {
      EXPECT_TRUE(IsOk(LookUp(table, BatchOf(-round, thread), {{}, -1, false}).status));
    } else {
      EXPECT_GE(EraseKeys(table, erased), 0);
    }
  });
}

TableConfig ConfigInDram() {
  TableConfig config = TestConfig();
  config.layout.dim = 32;
  config.num_shards = 4;
  return config;
}

void AddSlot(EmbeddingTable* table) {
  const std::vector<Slot> slots = {{"count", table->config().layout.dim, 0.0}};
  EXPECT_TRUE(IsOk(table->EnsureSlots(AsSpan(slots))));
}

// --- Saves ---

std::string SavePath(const std::string& folder, int64_t save) {
  char name[32];
  std::snprintf(name, sizeof(name), "/%s%08d", kSavePrefix, static_cast<int>(save));
  return folder + "/saves" + name;
}

// Of all files that are complete, by their names; 0: there is none.
int64_t NewestSave(const std::string& folder) {
  int64_t newest = 0;
  for (const auto& entry : fs::directory_iterator(folder + "/saves")) {
    const std::string name = entry.path().filename().string();
    const int64_t save = std::stoll(name.substr(sizeof(kSavePrefix) - 1));
    if (entry.path() == SavePath(folder, save)) newest = std::max(newest, save);
  }
  return newest;
}

// With all files that belong to it.
void RemoveSave(const std::string& folder, int64_t save) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder + "/saves")) {
    if (entry.path().string().rfind(SavePath(folder, save), 0) == 0) files.push_back(entry.path());
  }
  for (const fs::path& file : files) fs::remove_all(file);
}

// --- Processes ---

// What a process says of itself as long as it lives, and when it is dead.
struct Shared {
  CallsInFlight calls;
  std::atomic<int32_t> saves_in_flight{0};
  std::atomic<int64_t> last_save{0};  // that has returned
};

// In a file, so that a process and its parent have the same.
class SharedFile {
 public:
  explicit SharedFile(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    EXPECT_EQ(ftruncate(file, sizeof(Shared)), 0);
    memory_ = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    close(file);
  }
  ~SharedFile() { munmap(memory_, sizeof(Shared)); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  Shared* get() const { return static_cast<Shared*>(memory_); }

 private:
  void* memory_;
};

// A table in a folder as its resource has it in TensorFlow.
struct TieredTable {
  std::unique_ptr<TableFolder> folder;
  std::unique_ptr<EmbeddingTable> table;
};

TieredTable MakeTiered(const std::string& folder, Faults* faults) {
  TieredTable made;
  EXPECT_TRUE(IsOk(TableFolder::Make(folder + "/ssd", "table", &made.folder)));
  if (made.folder == nullptr) return made;
  TableConfig config = ConfigInDram();
  config.storage.path = made.folder->path();
  config.storage.dram_bytes = (int64_t{4} << 20) + (128 << 10);
  config.storage.open = [faults](const ColdStoreOptions& options, StorePtr* store) {
    StorePtr rocksdb;
    FE_RETURN_IF_ERROR(OpenColdStore(RocksDbUnderTest(), options, &rocksdb));
    *store = std::make_unique<FaultyColdStore>(options, std::move(rocksdb), faults);
    return Status();
  };
  made.table = MakeTable(config);
  return made;
}

void Restore(const std::string& path, EmbeddingTable* table) {
  EXPECT_TRUE(IsOk(RestoreTable(SerialExec(), {{&path, 1}}, PartitionFilter(), table))) << path;
}

void SleepUs(int64_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

// What a process was doing.
enum Phase { kFetch, kWriteBack, kSnapshot, kCompaction, kStart, kNumPhases };
constexpr const char* kPhaseNames[] = {"fetch", "write-back", "snapshot", "compaction", "start"};

// RocksDB merges in threads that it names so.
bool IsMerging(pid_t process) {
  std::error_code gone;  // threads and processes come and go
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : fs::directory_iterator(tasks, gone)) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "rocksdb:low") continue;
    std::getline(std::ifstream(task.path() / "stat"), line);
    const size_t state = line.rfind(") ") + 2;
    if (state < line.size() && line[state] != 'S') return true;
  }
  return false;
}

class ColdTierKill : public ColdStoreTest {
 protected:
  ColdTierKill() : ColdStoreTest("rocksdb") {}

  void SetUp() override {
    ColdStoreTest::SetUp();
    if (IsSkipped()) return;
    AddSlot(model_.get());
  }

  // Kills DISABLED_Trainer in that phase, or, where it does not come to it, in another.
  void RunAndKill(Phase phase) {
    const SharedFile file(Path("shared"));
    Shared* shared = file.get();
    new (shared) Shared;
    KilledProcess trainer("ColdTierKill.DISABLED_Trainer", Path(""));
    if (phase != kStart) trainer.WaitForSigns(RandomInt(&random_, 1, 2));
    SleepUs(RandomInt(&random_, 0, phase == kStart ? 100000 : 20000));
    const auto is_in = [&](Phase wanted) {
      return (wanted == kFetch && shared->calls.reads > 0) ||
             (wanted == kWriteBack && shared->calls.writes > 0) ||
             (wanted == kSnapshot && shared->saves_in_flight > 0) ||
             (wanted == kCompaction && IsMerging(trainer.id())) || wanted == kStart;
    };
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const auto deadline = now() + std::chrono::seconds(2);
    while (!is_in(phase) && now() < deadline) SleepUs(50);
    // Somewhere in the phase.
    SleepUs(RandomInt(&random_, 0, phase == kSnapshot ? 10000 : 300));
    const bool is_merging = IsMerging(trainer.id());
    trainer.Kill();
    num_in_[kFetch] += is_in(kFetch);
    num_in_[kWriteBack] += is_in(kWriteBack);
    num_in_[kSnapshot] += is_in(kSnapshot);
    num_in_[kCompaction] += is_merging;
    num_in_[kStart] += phase == kStart;
    const int64_t newest = NewestSave(Path(""));
    ASSERT_GE(newest, shared->last_save) << "a save that was done is gone";
    ASSERT_GE(newest, last_save_);
    num_advanced_ += newest > last_save_;
    while (last_save_ < newest) {
      ++last_save_;
      for (int64_t i = 0; i < kRoundsOfASave; ++i) {
        TrainRound((last_save_ - 1) * kRoundsOfASave + i + 1, model_.get());
      }
    }
  }

  // In the folder that was left.
  void CheckLastSave() {
    Faults faults;
    const TieredTable tiered = MakeTiered(Path(""), &faults);
    ASSERT_NE(tiered.table, nullptr);
    if (last_save_ == 0) return;
    Restore(SavePath(Path(""), last_save_), tiered.table.get());
    ASSERT_TRUE(ContentsOf(*tiered.table) == ContentsOf(*model_)) << "save " << last_save_;
    Ints keys;
    for (int64_t key = 0; key < kNumTierKeys; ++key) keys.push_back(key);
    const LookupArgs reads{{}, -1, false};
    const Lookup got = LookUp(tiered.table.get(), keys, reads);
    ASSERT_TRUE(IsOk(got.status));
    ASSERT_TRUE(got.values == LookUp(model_.get(), keys, reads).values) << "save " << last_save_;
  }

  Random random_{31};
  std::unique_ptr<EmbeddingTable> model_ = MakeTable(ConfigInDram());
  int64_t last_save_ = 0;
  int num_advanced_ = 0;
  int num_in_[kNumPhases] = {};
};

TEST_F(ColdTierKill, DISABLED_Trainer) {
  ASSERT_NE(FolderToKillIn(), nullptr) << "run by LeavesTheLastSave";
  fs::remove(Path(""));  // of this process, which does not come to TearDown
  const std::string folder = FolderToKillIn();
  setenv("TMPDIR", folder.c_str(), 1);  // what it leaves there goes with the test
  const SharedFile file(folder + "shared");
  Shared* shared = file.get();
  Faults faults;
  faults.in_flight = &shared->calls;
  const TieredTable tiered = MakeTiered(folder, &faults);
  ASSERT_NE(tiered.table, nullptr);
  EmbeddingTable* table = tiered.table.get();
  int64_t save = NewestSave(folder);
  if (save > 0) Restore(SavePath(folder, save), table);
  if (save == 0) AddSlot(table);
  Sign();
  while (!HasFailure()) {
    ++save;
    for (int64_t i = 0; i < kRoundsOfASave; ++i) {
      TrainRound((save - 1) * kRoundsOfASave + i + 1, table);
    }
    ++shared->saves_in_flight;
    // Others look rows up meanwhile, so that some come and go.
    std::thread reader([&] {
      for (int64_t i = 0; i < 5; ++i) {
        EXPECT_TRUE(IsOk(LookUp(table, BatchOf(-save, i), {{}, -1, false}).status));
      }
    });
    EXPECT_TRUE(IsOk(SaveTable(*table, SavePath(folder, save))));
    shared->last_save = save;
    Sign();
    --shared->saves_in_flight;
    reader.join();
    RemoveSave(folder, save - 2);
  }
}

TEST_F(ColdTierKill, LeavesTheLastSave) {
  fs::create_directories(Path("saves"));
  const int num_kills = NumKills();
  for (int i = 0; i < num_kills; ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    RunAndKill(static_cast<Phase>(i % kNumPhases));
    ASSERT_FALSE(HasFailure());
    CheckLastSave();
    ASSERT_FALSE(HasFailure());
  }
  std::string counts;
  for (int phase = 0; phase < kNumPhases; ++phase) {
    EXPECT_TRUE(num_in_[phase] > 0 || num_kills < 50) << "never killed in " << kPhaseNames[phase];
    counts += std::string(", \"") + kPhaseNames[phase] + "\": " + std::to_string(num_in_[phase]);
  }
  EXPECT_GE(num_advanced_, num_kills / 10) << "the trainer never gets to a save";
  std::printf("{\"killed\": \"a table above a store\", \"kills\": %d, \"saves\": %d%s}\n",
              num_kills, static_cast<int>(last_save_), counts.c_str());
}

}  // namespace
}  // namespace fused_embedding
