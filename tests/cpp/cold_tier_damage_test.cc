// Saves of tables above a cold store whose files are not what was written. Whatever files a save
// has, and whenever they are looked at: an error names the path, or the rows are those that were
// saved.

#include "tests/cpp/cold_tier_testing.h"
#include "tests/cpp/damaged_files.h"
#include "tf_ops/core/checkpoint/checkpoint.h"

namespace fused_embedding {
namespace {

constexpr int64_t kNumDamagedKeys = 3000;

class ColdTierDamage : public ColdStoreTest, public ::testing::WithParamInterface<const char*> {
 protected:
  ColdTierDamage() : ColdStoreTest(GetParam()) {}

  void SetUp() override {
    ColdStoreTest::SetUp();
    if (IsSkipped()) return;
    for (int64_t key = 0; key < kNumDamagedKeys; ++key) keys_.push_back(key * 7919 - 5);
    const auto table = MakeTiered("saved");
    const std::vector<Slot> slots = {{"sum", 8, 0.25}};
    ASSERT_TRUE(IsOk(table->EnsureSlots(AsSpan(slots))));
    for (int64_t step = 1; step < 4; ++step) Train(step, table.get());
    EXPECT_EQ(EraseKeys(table.get(), {keys_.begin(), keys_.begin() + 100}), 100);
    fs::create_directories(Path("good"));
    ASSERT_TRUE(IsOk(SaveTable(*table, Path("good/save"))));
    want_ = ContentsOf(*table);
    ASSERT_EQ(want_.rows.size(), static_cast<size_t>(kNumDamagedKeys - 100));
    want_values_ = LookUp(table.get(), keys_, {{}, -1, false}).values;
  }

  // Most of whose rows are in its store.
  std::unique_ptr<EmbeddingTable> MakeTiered(const std::string& name) const {
    TableConfig config = TieredConfig(Path(name), 64 << 10);
    config.storage.open = [this](const ColdStoreOptions& options, StorePtr* store) {
      return Open(options, store);
    };
    return MakeTable(config);
  }

  // Some keys, more often the further they are.
  void Train(int64_t step, EmbeddingTable* table) const {
    for (int64_t begin = 0; begin < kNumDamagedKeys; begin += step * 500) {
      const Ints batch(keys_.begin() + begin, keys_.end());
      const Lookup lookup = LookUp(table, batch, {{}, step});
      ASSERT_TRUE(IsOk(lookup.status));
      ASSERT_TRUE(
          IsOk(table->ForEachRow(SerialExec(), View(batch), View(lookup.handles), AddToRows)));
    }
  }

  static Status Restore(const std::string& path, EmbeddingTable* table) {
    return RestoreTable(SerialExec(), {{&path, 1}}, PartitionFilter(), table);
  }

  // An error is one that says where; else the rows are right, by a scan and by lookups.
  Status ReadAll(EmbeddingTable* table) const {
    TableContents contents;
    const Status scanned = ReadContents(*table, &contents);
    if (scanned.ok()) {
      EXPECT_TRUE(contents == want_) << "wrong rows, and no error";
    } else {
      EXPECT_TRUE(IsNamed(scanned));
    }
    const Lookup lookup = LookUp(table, keys_, {{}, -1, false});
    if (lookup.status.ok()) {
      EXPECT_TRUE(lookup.values == want_values_) << "wrong values, and no error";
    } else {
      EXPECT_TRUE(IsNamed(lookup.status));
    }
    return scanned;
  }
  // Of the save, or of the table that has its files.
  ::testing::AssertionResult IsNamed(const Status& status) const {
    const bool is_named = status.message().find(Path("bad/")) != std::string::npos ||
                          status.message().find(Path("restored/")) != std::string::npos;
    if (is_named) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "no path in: " << status.message();
  }

  void MakeBad() const {
    fs::remove_all(Path("bad"));
    fs::copy(Path("good"), Path("bad"), fs::copy_options::recursive);
  }
  // Whether it is not as before.
  static bool MutateOne(const std::vector<fs::path>& files, Random* random, std::string* name) {
    const int64_t last = static_cast<int64_t>(files.size()) - 1;
    const fs::path& file = files[static_cast<size_t>(RandomInt(random, 0, last))];
    *name = file.filename().string();
    const std::string before = ReadFile(file.string());
    Mutate(file, random);
    return !fs::exists(file) || ReadFile(file.string()) != before;
  }

  int MutateAndRestore(int num_mutations, EmbeddingTable* table) const;

  Ints keys_;
  TableContents want_;
  std::vector<float> want_values_;
};

INSTANTIATE_TEST_SUITE_P(Stores, ColdTierDamage, ::testing::Values("memory", "rocksdb"),
                         [](const auto& info) { return std::string(info.param); });

// Returns how many were errors, of the restore or of a scan of what it restored.
int ColdTierDamage::MutateAndRestore(int num_mutations, EmbeddingTable* table) const {
  Random random(41);
  int num_errors = 0, num_done = 0;
  while (num_done < num_mutations && !HasFailure()) {
    MakeBad();
    std::string name;
    if (!MutateOne(FilesIn(Path("bad")), &random, &name)) continue;
    SCOPED_TRACE("mutation " + std::to_string(num_done) + " of " + name);
    const Lookup trained = LookUp(table, {num_done, -1});  // is not what was saved
    if (!trained.status.ok()) {
      EXPECT_TRUE(IsNamed(trained.status));
      EXPECT_TRUE(IsOk(Restore(Path("good/save"), table)));
      continue;
    }
    TableContents before, after;
    const Status is_readable = ReadContents(*table, &before);
    const Status restored = Restore(Path("bad/save"), table);
    ++num_done;
    if (restored.ok()) {
      num_errors += !ReadAll(table).ok();
      continue;
    }
    ++num_errors;
    EXPECT_TRUE(IsNamed(restored));
    if (!is_readable.ok()) continue;
    EXPECT_TRUE(IsOk(ReadContents(*table, &after)));
    EXPECT_TRUE(after == before || after == TableContents()) << "neither unharmed nor empty";
    // It goes on.
    if (num_errors % 8 != 0) continue;
    EXPECT_TRUE(IsOk(LookUp(table, keys_).status));
    EXPECT_TRUE(IsOk(Restore(Path("good/save"), table)));
    EXPECT_TRUE(IsOk(ReadAll(table)));
  }
  return num_errors;
}

TEST_P(ColdTierDamage, OfASaveIsNamedOrHarmless) {
  EXPECT_GT(MutateAndRestore(48, MakeTiered("restored").get()), 20);
}

// What a table in DRAM reads is in RocksDB.
class RocksDbTierDamage : public ColdTierDamage {};
INSTANTIATE_TEST_SUITE_P(Stores, RocksDbTierDamage, ::testing::Values("rocksdb"));

TEST_P(RocksDbTierDamage, OfASaveThatATableInDramReads) {
  TableConfig config = TieredConfig("");
  config.storage = StorageConfig();
  EXPECT_GT(MutateAndRestore(16, MakeTable(config).get()), 7);
}

TEST_P(ColdTierDamage, AFileThatIsGoneIsNamed) {
  const auto table = MakeTiered("restored");
  for (const fs::path& file : FilesIn(Path("good"))) {
    MakeBad();
    const fs::path gone = Path("bad") / fs::relative(file, Path("good"));
    fs::remove(gone);
    const Status restored = Restore(Path("bad/save"), table.get());
    ASSERT_FALSE(restored.ok()) << gone;
    EXPECT_NE(restored.message().find(gone.string()), std::string::npos) << restored.message();
    EXPECT_EQ(table->size(), 0);
  }
  ASSERT_TRUE(IsOk(Restore(Path("good/save"), table.get())));
  EXPECT_TRUE(ContentsOf(*table) == want_);
}

}  // namespace
}  // namespace fused_embedding
