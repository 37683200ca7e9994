// Saving: the file that was there, full disks, training meanwhile.

#include <signal.h>
#include <sys/resource.h>

#include "tests/cpp/checkpoint_testing.h"

namespace fused_embedding {
namespace {

TEST_F(CheckpointTest, SavingReplacesWhatWasThere) {
  const TablePtr table = MakeTable(ConfigOf());
  Train({1}, 1, 1, table.get());
  Saved(*table);
  Train({2, 3}, 1, 1, table.get());
  Saved(*table);
  EXPECT_EQ(Files(), std::set<std::string>{"table"});
  const TablePtr restored = MakeTable(ConfigOf());
  ASSERT_TRUE(IsOk(Restore({Path("table")}, restored.get())));
  EXPECT_EQ(restored->size(), 3);
}

TEST_F(CheckpointTest, APathThatCannotBeWrittenIsNamed) {
  const TablePtr table = MakeTable(ConfigOf());
  EXPECT_TRUE(Fails(SaveTable(*table, Path("no/folder")), StatusCode::kFailedPrecondition,
                    {Path("no/folder").c_str(), "No such file"}));
  EXPECT_TRUE(IsInvalid(SaveTable(*table, ""), {"path"}));
  EXPECT_TRUE(IsInvalid(SaveTable(*table, std::string("a\0b", 3)), {"path"}));
  fs::create_directories(Path("folder/inside"));
  EXPECT_TRUE(Fails(SaveTable(*table, Path("folder")), StatusCode::kFailedPrecondition,
                    {Path("folder").c_str(), "rename"}));
  EXPECT_EQ(Files(), std::set<std::string>{"folder"});
}

TEST_F(CheckpointTest, ConcurrentSavesToOnePathGiveOneWholeFile) {
  const TablePtr table = MakeTable(ConfigOf());
  Train({1, 2, 3}, 1, 1, table.get());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        EXPECT_TRUE(IsOk(SaveTable(*table, Path("table"))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Files(), std::set<std::string>{"table"});
  const TablePtr restored = MakeTable(ConfigOf());
  EXPECT_TRUE(IsOk(Restore({Path("table")}, restored.get())));
}

// Files of this process may not grow beyond a size while this lives: as on a full disk, for every
// byte at which it may become full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(size_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {static_cast<rlim_t>(bytes), before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_;
};

TEST_F(CheckpointTest, AFullDiskLeavesTheOldFileAlone) {
  const TablePtr table = MakeTable(ConfigOf());
  Train({1, 2, 3}, 1, 1, table.get());
  const std::string old_bytes = ReadFile(Saved(*table));
  Train({4, 5}, 1, 1, table.get());
  const size_t size = ReadFile(Saved(*table, "whole")).size();
  for (size_t limit = 0; limit <= size; ++limit) {
    Status status;
    {
      const FileSizeLimit full_disk(limit);
      status = SaveTable(*table, Path("table"));
    }
    if (limit == size) {
      EXPECT_TRUE(IsOk(status));
      continue;
    }
    ASSERT_TRUE(Fails(status, StatusCode::kResourceExhausted,
                      {Path("table").c_str(), "cannot write", "File too large"}));
    ASSERT_EQ(Files(), (std::set<std::string>{"table", "whole"}));
    ASSERT_EQ(ReadFile(Path("table")), old_bytes);
  }
  EXPECT_EQ(ReadFile(Path("table")), ReadFile(Path("whole")));
}

// --- Training meanwhile ---

// Each step adds 1 to a row's value and slots. A row of a checkpoint has as much of one as of the
// other, and a slot that came later is either everywhere in it or not there.
TEST_F(CheckpointTest, RowsAreOfOneMomentWhileOthersTrain) {
  TableConfig config = ConfigOf();
  config.initializer.kind = InitializerKind::kConstant;
  config.initializer.a = 0;
  const TablePtr table = MakeTable(config);
  AddSlots({{"first", 3, 0}}, table.get());
  std::atomic<bool> is_done{false};
  const auto train = [&](int64_t thread) {
    Random random(static_cast<uint64_t>(thread));
    for (int64_t step = 0; !is_done; ++step) {
      std::vector<int64_t> keys;
      for (int i = 0; i < 64; ++i)
        keys.push_back(RandomInt(&random, 0, 500 + std::min<int64_t>(step, 500)));
      std::sort(keys.begin(), keys.end());
      keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
      Train(keys, 1, step, table.get());
      const auto add_one = [](const RowLayout& layout, const RowBatch& batch) {
        for (int64_t i = 0; i < batch.n; ++i) {
          if (batch.rows[i] == nullptr) continue;
          auto* value = reinterpret_cast<float*>(batch.rows[i] + layout.value_offset());
          auto* slots = reinterpret_cast<float*>(batch.rows[i] + layout.slots_offset());
          for (int d = 0; d < 3; ++d) value[d] += 1;
          for (int64_t d = 0; d < layout.slot_width(); ++d) slots[d] += 1;
        }
      };
      EXPECT_TRUE(IsOk(table->ForEachRow(
          SerialExec(), {keys.data(), static_cast<int64_t>(keys.size())}, {}, add_one)));
      if (thread == 0 && step == 20) AddSlots({{"second", 2, 0}}, table.get());
    }
  };
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < 3; ++thread) threads.emplace_back(train, thread);
  for (int round = 0; round < 8; ++round) {
    const TablePtr restored = MakeTable(config);
    ASSERT_TRUE(IsOk(Restore({Saved(*table)}, restored.get())));
    for (const auto& [key, row] : ContentOf(*restored).rows) {
      EXPECT_EQ(row.at("value"), row.at("first")) << "key " << key;
      if (row.count("second") == 0) continue;
      const std::vector<float> second = FloatsOf(row.at("second"));
      EXPECT_EQ(second[0], second[1]);
      EXPECT_LE(second[0], FloatsOf(row.at("first"))[0]);
    }
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace fused_embedding
