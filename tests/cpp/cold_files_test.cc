// Checkpoints of tables above a cold store, whose rows are files of that store.

#include "tf_ops/core/checkpoint/cold_files.h"

#include <sys/stat.h>

#include "tests/cpp/cold_tier_testing.h"
#include "tf_ops/core/checkpoint/checkpoint.h"

namespace fused_embedding {
namespace {

constexpr char kName[] = "model-7.data-e3ibl-of-l4qbu";

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

// Rows that are too large for the file of the table.
class ColdFilesTest : public ColdStoreTest {
 protected:
  explicit ColdFilesTest(std::string kind = "rocksdb") : ColdStoreTest(std::move(kind)) {}

  void SetUp() override {
    ColdStoreTest::SetUp();
    if (IsSkipped()) return;
    fs::create_directories(Path("saved"));
    path_ = Path("saved/") + kName;
  }

  TableConfig ConfigOf(const std::string& tier) const {
    TableConfig config = TieredConfig(Path(tier), 256 << 10);
    config.layout.dim = 32;
    config.storage.open = [this](const ColdStoreOptions& options, StorePtr* store) {
      return Open(options, store);
    };
    return config;
  }
  static TableConfig InDram(TableConfig config) {
    config.storage = StorageConfig();
    return config;
  }
  std::unique_ptr<EmbeddingTable> TrainedTable(const std::string& tier, const Ints& keys) const {
    auto table = MakeTable(ConfigOf(tier));
    const std::vector<Slot> slots = {{"sum", 32, 0.1}};
    EXPECT_TRUE(IsOk(table->EnsureSlots(AsSpan(slots))));
    Train(table.get(), keys);
    return table;
  }
  Status Restore(const std::vector<std::string>& paths, EmbeddingTable* table,
                 const PartitionFilter& filter = PartitionFilter()) const {
    return RestoreTable(SerialExec(), {AsSpan(paths)}, filter, table);
  }
  // Beside the table's own.
  std::set<std::string> ColdNames() const {
    std::set<std::string> names = NamesIn(Path("saved"));
    EXPECT_EQ(names.erase(kName), 1u);
    return names;
  }

  std::string path_;
};

class AnyStoreFilesTest : public ColdFilesTest, public ::testing::WithParamInterface<const char*> {
 protected:
  AnyStoreFilesTest() : ColdFilesTest(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Stores, AnyStoreFilesTest, ::testing::Values("memory", "rocksdb"));

TEST_P(AnyStoreFilesTest, SavesAndRestores) {
  const auto table = TrainedTable("a", KeyRange(0, 9000));
  EXPECT_EQ(EraseKeys(table.get(), KeyRange(100, 300)), 200);
  const TableContents want = ContentsOf(*table);
  EXPECT_EQ(want.rows.size(), 8800u);
  for (const bool as_one_file : {false, true}) {
    ASSERT_TRUE(IsOk(SaveTable(*table, path_, as_one_file)));
    for (const bool is_tiered : {true, false}) {
      if (!as_one_file && !is_tiered && !IsRocksDb()) continue;  // that reads RocksDB's files
      const TableConfig config = ConfigOf("b");
      const auto restored = MakeTable(is_tiered ? config : InDram(config));
      Train(restored.get(), KeyRange(4000, 9500));  // goes
      const int64_t num_hits_before = restored->Statistics().cold_hits;
      EXPECT_EQ(num_hits_before > 0, is_tiered);
      ASSERT_TRUE(IsOk(Restore({path_}, restored.get())));
      EXPECT_EQ(restored->size(), 8800);
      const int64_t num_hits = restored->Statistics().cold_hits;
      EXPECT_GE(num_hits, num_hits_before) << "the counts of the store before are gone";
      ASSERT_TRUE(IsOk(LookUp(restored.get(), KeyRange(500, 600), {{}, -1, false}).status));
      if (is_tiered && !as_one_file) {
        EXPECT_EQ(restored->Statistics().cold_hits - num_hits, 100) << "taken over row by row";
      }
      EXPECT_TRUE(ContentsOf(*restored) == want);
      // And goes on as the other.
      const auto other = MakeTable(InDram(config));
      const std::string whole = Path("whole");
      ASSERT_TRUE(IsOk(SaveTable(*table, whole, true)));
      ASSERT_TRUE(IsOk(Restore({whole}, other.get())));
      for (EmbeddingTable* one : {restored.get(), other.get()}) {
        Train(one, KeyRange(8000, 12000));
        EXPECT_EQ(EraseKeys(one, KeyRange(0, 200)), 100);
      }
      EXPECT_TRUE(ContentsOf(*restored) == ContentsOf(*other));
      EXPECT_EQ(restored->size(), other->size());
    }
  }
}

TEST_P(AnyStoreFilesTest, AreNotIncremental) {
  const auto table = TrainedTable("a", KeyRange(0, 10));
  Increment increment;
  increment.path = Path("delta");
  EXPECT_TRUE(Fails(SaveIncrement(increment, table.get()), StatusCode::kUnimplemented,
                    {"incremental", "delta"}));
}

TEST_F(ColdFilesTest, AreHardLinksWithThePrefixOfTheCheckpoint) {
  const auto table = TrainedTable("a", KeyRange(0, 9000));
  // The store may be merging its files, and drop those that it has given to the checkpoint.
  const auto is_linked = [&] {
    EXPECT_TRUE(IsOk(SaveTable(*table, path_)));
    bool is_linked = true;
    for (const std::string& name : ColdNames()) {
      struct stat info;
      EXPECT_EQ(stat(Path("saved/" + name).c_str(), &info), 0);
      is_linked &= info.st_nlink == 2;
    }
    return is_linked;
  };
  int attempts = 1;
  for (; !is_linked() && attempts < 100; ++attempts) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_LT(attempts, 100) << "files are copied";
  uintmax_t bytes = 0;
  for (const std::string& name : ColdNames()) {
    EXPECT_EQ(PrefixOf(Path("saved/" + name)), Path("saved/model-7"));
    bytes += fs::file_size(Path("saved/" + name));
  }
  EXPECT_GT(bytes, 9000u * 256);
  EXPECT_LT(fs::file_size(path_), 256u << 10);
  // They are the checkpoint's own: training changes them no more, nor does the end of the table.
  const TableContents want = ContentsOf(*table);
  Train(table.get(), KeyRange(0, 20000));
  const auto restored = MakeTable(InDram(ConfigOf("")));
  ASSERT_TRUE(IsOk(Restore({path_}, restored.get())));
  EXPECT_TRUE(ContentsOf(*restored) == want);
  // A checkpoint may be renamed, by its prefix.
  fs::create_directories(Path("moved"));
  for (const std::string& name : NamesIn(Path("saved"))) {
    fs::rename(Path("saved/" + name), Path("moved/other" + name.substr(7)));
  }
  ASSERT_TRUE(IsOk(Restore({Path("moved/other") + std::string(kName).substr(7)}, restored.get())));
  EXPECT_TRUE(ContentsOf(*restored) == want);
  // And removed, once a table has taken it over.
  const auto tiered = MakeTable(ConfigOf("b"));
  ASSERT_TRUE(IsOk(Restore({Path("moved/other") + std::string(kName).substr(7)}, tiered.get())));
  fs::remove_all(Path("moved"));
  EXPECT_TRUE(ContentsOf(*tiered) == want);
  for (const auto& entry : fs::recursive_directory_iterator(Path("b"))) {
    EXPECT_FALSE(entry.is_symlink()) << entry.path() << " is open, or it could not be read";
  }
}

TEST_F(ColdFilesTest, AreCopiesInAnotherFileSystem) {
  std::string folder = "/dev/shm/fe_XXXXXX";
  struct stat here, there;
  ASSERT_EQ(stat(Path("saved").c_str(), &here), 0);
  if (stat("/dev/shm", &there) != 0 || there.st_dev == here.st_dev) {
    GTEST_SKIP() << "/dev/shm is no other file system";
  }
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto table = TrainedTable("a", KeyRange(0, 9000));
  const std::string path = folder + "/" + kName;
  EXPECT_TRUE(IsOk(SaveTable(*table, path)));
  EXPECT_GE(NamesIn(folder).size(), 2u);
  for (const std::string& name : NamesIn(folder)) {
    EXPECT_EQ(fs::hard_link_count(fs::path(folder) / name), 1u) << name;
  }
  const auto restored = MakeTable(ConfigOf("b"));
  EXPECT_TRUE(IsOk(Restore({path}, restored.get())));
  fs::remove_all(folder);
  EXPECT_TRUE(ContentsOf(*restored) == ContentsOf(*table));
}

TEST_F(ColdFilesTest, GoWhenTheFileIsWrittenAnew) {
  const auto table = TrainedTable("a", KeyRange(0, 9000));
  ASSERT_TRUE(IsOk(SaveTable(*table, path_)));
  const std::set<std::string> first = ColdNames();
  for (const std::string& name : first) EXPECT_EQ(name.rfind("model-7.data-e3ibl-of-l", 0), 0u);
  WriteFile(Path("saved/model-8.data-eaaaa-of-aaaaa"), "of another checkpoint");
  Train(table.get(), KeyRange(0, 12000));
  ASSERT_TRUE(IsOk(SaveTable(*table, path_)));
  const std::set<std::string> second = ColdNames();
  EXPECT_EQ(second.count("model-8.data-eaaaa-of-aaaaa"), 1u);
  EXPECT_GE(second.size(), 2u);
  for (const std::string& name : first) EXPECT_EQ(second.count(name), 0u) << name;
  const auto restored = MakeTable(ConfigOf("b"));
  ASSERT_TRUE(IsOk(Restore({path_}, restored.get())));
  EXPECT_TRUE(ContentsOf(*restored) == ContentsOf(*table));
  ASSERT_TRUE(IsOk(SaveTable(*MakeTable(InDram(ConfigOf(""))), path_)));
  EXPECT_EQ(ColdNames().size(), 1u);
}

TEST_F(ColdFilesTest, OfAnyNumberOfPartitions) {
  const auto partition = [](int64_t index, int64_t count) {
    return PartitionFilter{PartitionStrategy::kModEv, index, count};
  };
  const auto mine = [](const TableContents& all, const PartitionFilter& filter) {
    TableContents kept;
    for (const auto& row : all.rows) {
      if (filter.Keeps(row.first)) kept.rows.insert(row);
    }
    return kept;
  };
  const auto whole = TrainedTable("whole", KeyRange(0, 9000));
  const TableContents want = ContentsOf(*whole);
  ASSERT_TRUE(IsOk(SaveTable(*whole, path_)));
  std::vector<std::string> paths;
  for (int64_t i = 0; i < 3; ++i) {
    const std::string name = std::to_string(i);
    const auto table = MakeTable(ConfigOf("one" + name));
    ASSERT_TRUE(IsOk(Restore({path_}, table.get(), partition(i, 3))));
    EXPECT_TRUE(ContentsOf(*table) == mine(want, partition(i, 3)));
    paths.push_back(Path("part-") + name);
    ASSERT_TRUE(IsOk(SaveTable(*table, paths.back())));
  }
  for (const int64_t count : {1, 2, 3}) {
    for (int64_t i = 0; i < count; ++i) {
      const auto table = MakeTable(ConfigOf("other"));
      ASSERT_TRUE(IsOk(Restore(paths, table.get(), partition(i, count))));
      const TableContents kept = mine(want, partition(i, count));
      EXPECT_EQ(table->size(), static_cast<int64_t>(kept.rows.size()));
      EXPECT_EQ(table->Statistics().cold_puts == 0, count == 3) << "of its own file alone";
      EXPECT_TRUE(ContentsOf(*table) == kept);
    }
  }
}

// Each file in turn is not what was written.
TEST_F(ColdFilesTest, DamageIsToldWithTheName) {
  const auto table = TrainedTable("a", KeyRange(0, 9000));
  ASSERT_TRUE(IsOk(SaveTable(*table, path_)));
  const auto restored = MakeTable(ConfigOf("b"));
  Train(restored.get(), KeyRange(0, 100));
  const TableContents before = ContentsOf(*restored);
  std::set<std::string> names = ColdNames();
  names.insert(kName);
  for (const std::string& name : names) {
    const std::string file = Path("saved/" + name);
    const std::string bytes = ReadFile(file);
    const auto expect_told = [&](const char* what) {
      EXPECT_TRUE(Fails(Restore({path_}, restored.get()), StatusCode::kDataLoss, {name.c_str()}))
          << what << " " << name;
      EXPECT_TRUE(ContentsOf(*restored) == before) << what;
    };
    fs::remove(file);
    if (name != kName) expect_told("removed");
    // Not between the blocks of RocksDB's files, which begin at pages: nothing is there.
    const size_t middle = bytes.size() / 2 / 4096 * 4096 + 100;
    for (const size_t place : {size_t{100}, middle, bytes.size() - 10}) {
      std::string altered = bytes;
      altered[place] = static_cast<char>(altered[place] ^ 4);
      WriteFile(file, altered);
      expect_told("altered");
    }
    WriteFile(file, bytes.substr(0, bytes.size() / 2));
    expect_told("truncated");
    WriteFile(file, bytes);
  }
  EXPECT_TRUE(IsOk(Restore({path_}, restored.get())));
  EXPECT_TRUE(ContentsOf(*restored) == ContentsOf(*table));
}

TEST_F(ColdFilesTest, ASaveThatFailsLeavesWhatWasThere) {
  const auto table = TrainedTable("a", KeyRange(0, 9000));
  ASSERT_TRUE(IsOk(SaveTable(*table, path_)));
  const TableContents want = ContentsOf(*table);
  const std::set<std::string> names = NamesIn(Path("saved"));
  Train(table.get(), KeyRange(0, 9000));
  EXPECT_TRUE(Fails(SaveTable(*table, Path("missing/") + kName), StatusCode::kFailedPrecondition,
                    {"missing/model-7"}));
  // It cannot get its name, when all of it is there.
  const std::string taken = "model-8.data-eaaaa-of-aaaaa";
  fs::create_directories(Path("saved/" + taken));
  EXPECT_TRUE(Fails(SaveTable(*table, Path("saved/" + taken)), StatusCode::kFailedPrecondition,
                    {taken.c_str()}));
  fs::remove_all(Path("saved/" + taken));
  EXPECT_EQ(NamesIn(Path("saved")), names);
  const auto restored = MakeTable(ConfigOf("b"));
  ASSERT_TRUE(IsOk(Restore({path_}, restored.get())));
  EXPECT_TRUE(ContentsOf(*restored) == want);
}

TEST(ColdFilesNames, OfPrefixes) {
  EXPECT_EQ(PrefixOf("a/model-7.data-e3ibl-of-l4qbu"), "a/model-7");
  for (const char* other :
       {"a/model-7", "", "a/m.data-00000-of-00001", "a/m.data-e3ibl-of-l4qb1",
        "m.data-e3ibl-of-l4qb", "m.data-E3ibl-of-l4qbu", ".data-e3ibl-of-l4qbu"}) {
    EXPECT_EQ(PrefixOf(other), other);
  }
}

// What no save has written, but somebody else with checksums.
TEST(ColdFilesNames, ThatMakeNoSense) {
  const std::string long_name = "data/" + std::string(300, 'a');
  for (const ColdFile& file :
       {ColdFile{"../x", "", "1"}, ColdFile{"data/../x", "", "1"}, ColdFile{"", "", "1"},
        ColdFile{"/tmp/x", "", "1"}, ColdFile{"data/", "", "1"}, ColdFile{"data/..", "", "1"},
        ColdFile{"data/x", "/../../etc/passwd", ""}, ColdFile{"data/x", ".data-00000-of-00001", ""},
        ColdFile{std::string("x\0y", 3), "", "1"}}) {
    ColdFolder folder;
    EXPECT_TRUE(Fails(folder.Make("/tmp/model", {&file, 1}), StatusCode::kDataLoss, {"/tmp/model"}))
        << file.name;
  }
  const ColdFile file{long_name, "", "1"};
  ColdFolder folder;
  EXPECT_FALSE(folder.Make("/tmp/model", {&file, 1}).ok());
  ColdFile decoded;
  const std::string encoded = EncodeColdFile({"data/x", ".data-e3ibl-of-l4qbu", "12"});
  ASSERT_TRUE(IsOk(DecodeColdFile(AsSpan(encoded), &decoded)));
  EXPECT_EQ(decoded.name + decoded.suffix + decoded.bytes, "data/x.data-e3ibl-of-l4qbu12");
  for (size_t size = 0; size < encoded.size(); ++size) {
    EXPECT_FALSE(DecodeColdFile(AsSpan(encoded.substr(0, size)), &decoded).ok()) << size;
  }
}

}  // namespace
}  // namespace fused_embedding
