// Files of checkpoints that are removed while they are restored, as max_to_keep of a training does
// it beside an evaluator: after they were checked, and before the last of them is loaded.

#include <sys/resource.h>

#include "tests/cpp/cold_tier_testing.h"
#include "tf_ops/core/checkpoint/checkpoint.h"

namespace fused_embedding {
namespace {

constexpr int64_t kNumShardKeys = 12000;  // of a shard: more than one thread would take
const std::vector<Slot> kSlots = {{"sum", 8, 0.25}};

// Calls `act` once a restore has dropped the rows of a table and loads new ones: only then is it
// asked for its threads.
class ActingExec final : public CpuExec {
 public:
  explicit ActingExec(std::function<void()> act) : act_(std::move(act)) {}
  int num_threads() const override {
    if (!is_done_) act_();
    is_done_ = true;
    return 2;
  }
  void ParallelFor(int64_t total, int64_t /*unit_ns*/, const Body& body) const override {
    if (total > 0) body(0, total);
  }
  bool is_done() const { return is_done_; }

 private:
  const std::function<void()> act_;
  mutable bool is_done_ = false;
};

class VanishingFiles : public ColdStoreTest {
 protected:
  explicit VanishingFiles(const std::string& kind = "memory") : ColdStoreTest(kind) {}

  std::unique_ptr<EmbeddingTable> Make(const std::string& name, bool is_tiered = false) {
    TableConfig config = TieredConfig(Path(name));
    config.num_shards = 1;
    config.storage.open = [this](const ColdStoreOptions& options, StorePtr* store) {
      if (!options.is_read_only && before_open_) before_open_();
      return Open(options, store);
    };
    if (!is_tiered) config.storage = StorageConfig();
    return MakeTable(config);
  }
  // The rows of partition `index` of `count`, saved.
  std::string Save(const std::string& name, bool is_tiered, int64_t index = 0, int64_t count = 1) {
    const auto table = Make(name, is_tiered);
    EXPECT_TRUE(IsOk(table->EnsureSlots(AsSpan(kSlots))));
    Ints keys;
    const PartitionFilter filter = {PartitionStrategy::kHash, index, count};
    for (const int64_t key : KeyRange(0, kNumShardKeys * count)) {
      if (filter.Keeps(key)) keys.push_back(key);
    }
    Train(table.get(), keys);
    EXPECT_TRUE(IsOk(SaveTable(*table, Path("save/" + name))));
    for (const auto& [key, row] : ContentsOf(*table).rows) want_.rows[key] = row;
    return Path("save/" + name);
  }
  std::unique_ptr<EmbeddingTable> MakeTarget(bool is_tiered = false) {
    auto table = Make("target", is_tiered);
    EXPECT_TRUE(IsOk(table->EnsureSlots({kSlots.data(), 1})));
    Train(table.get(), KeyRange(-100, 0));
    return table;
  }
  void RemoveSave() const {
    for (const auto& entry : fs::directory_iterator(Path("save"))) fs::remove(entry.path());
  }
  void SetUp() override {
    ColdStoreTest::SetUp();
    if (!IsSkipped()) fs::create_directories(Path("save"));
  }

  TableContents want_;  // of all saves
  std::function<void()> before_open_;
};

class VanishingColdFiles : public VanishingFiles,
                           public ::testing::WithParamInterface<const char*> {
 protected:
  VanishingColdFiles() : VanishingFiles(GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Stores, VanishingColdFiles, ::testing::Values("memory", "rocksdb"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(VanishingFiles, AreLoadedAsTheyWereChecked) {
  const std::vector<std::string> paths = {Save("a", false, 0, 2), Save("b", false, 1, 2)};
  const auto table = MakeTarget();
  const ActingExec exec([this] { RemoveSave(); });
  EXPECT_TRUE(IsOk(RestoreTable(exec, {AsSpan(paths)}, PartitionFilter(), table.get())));
  EXPECT_TRUE(exec.is_done());
  EXPECT_TRUE(ContentsOf(*table) == want_);
}

// Taken over as files, or row by row; by a table with a store, or in memory.
TEST_P(VanishingColdFiles, AreLoadedAsTheyWereChecked) {
  const std::string path = Save("a", true);
  ASSERT_GT(std::distance(fs::directory_iterator(Path("save")), fs::directory_iterator()), 1);
  fs::copy(Path("save"), Path("kept"));
  for (const bool is_whole : {true, false}) {
    const auto table = MakeTarget(true);
    int num_removed = 0;
    before_open_ = [&] {
      ++num_removed;
      RemoveSave();
    };
    const PartitionFilter filter = {PartitionStrategy::kHash, 0, is_whole ? 1 : 2};
    EXPECT_TRUE(IsOk(RestoreTable(SerialExec(), {{&path, 1}}, filter, table.get())));
    before_open_ = nullptr;
    EXPECT_GT(num_removed, 0);
    TableContents want;
    for (const auto& [key, row] : want_.rows) {
      if (filter.Keeps(key)) want.rows[key] = row;
    }
    EXPECT_TRUE(ContentsOf(*table) == want) << is_whole;
    fs::remove(Path("save"));
    fs::copy(Path("kept"), Path("save"));
  }
}

// With few descriptors there is a limit to what is held, and a restore takes as many as before.
TEST_F(VanishingFiles, NeedFewDescriptors) {
  const std::string path = Save("a", false);
  std::vector<std::string> paths;
  for (int i = 0; i < 40; ++i) {
    paths.push_back(Path("save/link" + std::to_string(i)));
    fs::create_hard_link(path, paths.back());
  }
  const auto table = MakeTarget();
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const fs::directory_iterator open_files("/proc/self/fd");
  const auto num_open = static_cast<rlim_t>(std::distance(begin(open_files), end(open_files)));
  // So that a quarter of them is more than there are left: what is held is given up.
  for (const rlim_t limit : {num_open + 3, num_open + 30}) {
    const struct rlimit few = {limit, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const Status status =
        RestoreTable(SerialExec(), {AsSpan(paths)}, PartitionFilter(), table.get());
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(IsOk(status)) << limit;
  }
  EXPECT_TRUE(ContentsOf(*table) == want_);
}

// Of more files than can be held, and of files that are overwritten: nothing is silently lost.
TEST_F(VanishingFiles, AnErrorAfterTheRowsWereDroppedSaysSo) {
  const std::vector<std::string> paths = {Save("a", false, 0, 2), Save("b", false, 1, 2)};
  const auto table = MakeTarget();
  const ActingExec exec([&] { fs::resize_file(paths[1], 100); });
  EXPECT_TRUE(Fails(RestoreTable(exec, {AsSpan(paths)}, PartitionFilter(), table.get()),
                    StatusCode::kDataLoss,
                    {paths[1].c_str(), "truncated", "the rows that the table had are gone"}));
  EXPECT_EQ(table->size(), 0);
}

}  // namespace
}  // namespace fused_embedding
