// Cold stores whose files are not what was written: checkpoints, and files in use.

#include "tests/cpp/cold_store_testing.h"
#include "tests/cpp/damaged_files.h"
#include "tf_ops/core/base/crc32c.h"

namespace fused_embedding {
namespace {

constexpr int64_t kValueBytes = 100;

class ColdStoreDamage : public ColdStoreTest, public ::testing::WithParamInterface<const char*> {
 protected:
  ColdStoreDamage() : ColdStoreTest(GetParam()) {}

  void SetUp() override {
    ColdStoreTest::SetUp();
    if (IsSkipped()) return;
    const StorePtr store = Opened(OptionsOf(kValueBytes));
    for (int64_t part = 0; part < 3; ++part) {  // each a file
      Rows rows;
      for (int64_t i = 0; i < 400; ++i) rows[i * 3 + part] = ValueOf(i, part, kValueBytes);
      ASSERT_TRUE(IsOk(Put(rows, store.get())));
      ASSERT_TRUE(IsOk(store->Flush()));
      rows_.insert(rows.begin(), rows.end());
    }
    ASSERT_TRUE(IsOk(store->Checkpoint(Path("good"))));
  }

  // The content is right, or an error says which file is not.
  ::testing::AssertionResult IsRightOrNamed(const Status& status, const Rows& got,
                                            const std::string& name) const {
    if (!status.ok()) {
      if (status.message().find(name) != std::string::npos) return ::testing::AssertionSuccess();
      return ::testing::AssertionFailure() << name << " is not in: " << status.message();
    }
    if (got == rows_) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "wrong rows, and no error";
  }
  ::testing::AssertionResult ReadsRightOrNamed(ColdStore* store, const std::string& name) const {
    Rows got, scanned;
    const Status of_get = Get(KeysOf(rows_), store, &got);
    const ::testing::AssertionResult result = IsRightOrNamed(of_get, got, name);
    return result ? IsRightOrNamed(Scan(store, &scanned), scanned, name) : result;
  }

  static std::string HexOf(const std::string& bytes) {
    char text[16];
    std::snprintf(text, sizeof(text), "%08x", Crc32c(AsSpan(bytes)));
    return text;
  }

  void MakeBad() const {
    fs::remove_all(Path("bad"));
    fs::copy(Path("good"), Path("bad"), fs::copy_options::recursive);
  }

  // Opens "bad" with another list, whose checksum is right.
  Status OpenForged(const std::string& from, const std::string& to) {
    MakeBad();
    return OpenChanged(from, to);
  }
  Status OpenChanged(const std::string& from, const std::string& to) {
    const std::string path = Path("bad/fe_cold_checkpoint");
    std::string list = ReadFile(path);
    const size_t place = list.find(from);
    EXPECT_NE(place, std::string::npos) << list;
    list.replace(place, from.size(), to);
    list.resize(list.rfind("crc32c "));
    WriteFile(path, list + "crc32c " + HexOf(list) + "\n");
    ColdStoreOptions options = OptionsOf(kValueBytes, "bad");
    if (to.rfind("value_bytes ", 0) == 0) options.value_bytes = std::stoll(to.substr(12));
    return Open(options, &forged_);
  }

  Rows rows_;
  StorePtr forged_;
};

INSTANTIATE_TEST_SUITE_P(Stores, ColdStoreDamage, ::testing::Values("memory", "rocksdb"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ColdStoreDamage, OfACheckpointIsNamedOrHarmless) {
  Random random(26);
  int num_errors = 0;
  for (int i = 0; i < 48; ++i) {
    MakeBad();
    const std::vector<fs::path> files = FilesIn(Path("bad"));
    const fs::path file =
        files[static_cast<size_t>(RandomInt(&random, 0, static_cast<int64_t>(files.size()) - 1))];
    const std::string before = ReadFile(file.string());
    Mutate(file, &random);
    if (fs::exists(file) && ReadFile(file.string()) == before) continue;
    const std::string name = file.filename().string();
    SCOPED_TRACE("mutation " + std::to_string(i) + " of " + name);
    StorePtr store;
    ColdStoreOptions options = OptionsOf(kValueBytes, "bad");
    options.is_read_only = RandomBool(&random);
    const Status opened = Open(options, &store);
    if (opened.ok()) {
      EXPECT_TRUE(ReadsRightOrNamed(store.get(), name));
    } else {
      ++num_errors;
      EXPECT_TRUE(IsRightOrNamed(opened, {}, name));
      EXPECT_EQ(store, nullptr);
    }
    store.reset();
    if (i % 8 == 0) {
      EXPECT_EQ(Scanned(Opened(OptionsOf(kValueBytes, "good")).get()), rows_);
    }
  }
  EXPECT_GT(num_errors, 10);
}

// Of the files that only RocksDB has.
class RocksDbDamage : public ColdStoreDamage {};
INSTANTIATE_TEST_SUITE_P(Stores, RocksDbDamage, ::testing::Values("rocksdb"));

TEST_P(RocksDbDamage, OfFilesInUseIsNamedOrHarmlessAndACheckpointBringsThemBack) {
  Random random(27);
  int num_harmful = 0;
  for (int i = 0; i < 48; ++i) {
    StorePtr store = Opened(OptionsOf(kValueBytes, "good"));
    std::vector<fs::path> files = FilesIn(Path("store/data"));
    const auto is_other = [](const fs::path& path) { return path.extension() != ".sst"; };
    files.erase(std::remove_if(files.begin(), files.end(), is_other), files.end());
    ASSERT_EQ(files.size(), 3u);
    const fs::path file = files[static_cast<size_t>(i % 3)];
    // Not the one file that the checkpoint has as well.
    const std::string bytes = ReadFile(file.string());
    SCOPED_TRACE("mutation " + std::to_string(i) + " of " + file.filename().string());
    Mutate(file, &random);
    const ::testing::AssertionResult reads = ReadsRightOrNamed(store.get(), file.filename());
    EXPECT_TRUE(reads);
    Rows got;
    if (!Get(KeysOf(rows_), store.get(), &got).ok()) ++num_harmful;
    store.reset();
    const std::string linked = Path("good/data/" + file.filename().string());
    WriteFile(linked, bytes);  // as from the copy that one keeps
  }
  EXPECT_GT(num_harmful, 5);
  EXPECT_EQ(Scanned(Opened(OptionsOf(kValueBytes, "good")).get()), rows_);
}

TEST_P(ColdStoreDamage, FilesThatAreMissingOrOfAnotherSizeSaySo) {
  const std::vector<fs::path> files = FilesIn(Path("good/data"));
  for (const fs::path& file : files) {
    const std::string name = "bad/data/" + file.filename().string();
    const std::string bytes = ReadFile(file.string());
    const auto fails = [&](const std::string& reason) {
      StorePtr store;
      return Fails(Open(OptionsOf(kValueBytes, "bad"), &store), StatusCode::kDataLoss,
                   {Path(name).c_str(), reason.c_str(), "restore another one"});
    };
    const auto says = [&](size_t size) {
      return "has " + std::to_string(size) + " bytes instead of " + std::to_string(bytes.size());
    };
    MakeBad();
    WriteFile(Path(name), bytes + "x");
    EXPECT_TRUE(fails(says(bytes.size() + 1)));
    if (!bytes.empty()) {
      WriteFile(Path(name), bytes.substr(1));
      EXPECT_TRUE(fails(says(bytes.size() - 1)));
    }
    fs::remove(Path(name));
    EXPECT_TRUE(fails("is missing"));
  }
}

TEST_P(ColdStoreDamage, ListsThatAreForgedOrOfOtherVersions) {
  EXPECT_TRUE(IsOk(OpenForged("value_bytes", "value_bytes")));
  EXPECT_EQ(Scanned(forged_.get()), rows_);
  forged_.reset();
  EXPECT_TRUE(Fails(OpenForged("checkpoint 1", "checkpoint 2"), StatusCode::kUnimplemented,
                    {Path("bad").c_str(), "format version 2", "reads version 1"}));
  EXPECT_TRUE(Fails(OpenForged("fused", "FUSED"), StatusCode::kDataLoss, {"does not begin"}));
  EXPECT_TRUE(IsInvalid(OpenForged("kind ", "kind other_"), {"kind other_", GetParam()}));
  EXPECT_EQ(forged_, nullptr);
  EXPECT_FALSE(OpenForged("file ", "file ../../good/data/").ok());
  if (!IsRocksDb()) return;
  // Rows of another size than the list says.
  ASSERT_TRUE(IsOk(OpenForged("value_bytes 100", "value_bytes 99")));
  Rows rows;
  EXPECT_TRUE(Fails(Get({0}, forged_.get(), &rows), StatusCode::kDataLoss,
                    {forged_->path().c_str(), "key 0 has 100 bytes instead of 99"}));
  EXPECT_TRUE(Fails(Scan(forged_.get(), &rows), StatusCode::kDataLoss, {"100 bytes instead"}));
}

// RocksDB writes a file of options, which one of another version may not understand.
TEST_P(RocksDbDamage, OptionsOfAnotherVersionDoNotMatter) {
  MakeBad();
  for (const fs::path& file : FilesIn(Path("bad"))) {
    const std::string name = file.filename().string();
    if (name.rfind("OPTIONS", 0) != 0) continue;
    const std::string before = ReadFile(file.string());
    const std::string after = "[Version]\n  rocksdb_version=99.1\n[Nonsense \"x\"]\n  y=z\n";
    const auto line = [&](const std::string& bytes) {
      return name + " " + std::to_string(bytes.size()) + " " + HexOf(bytes);
    };
    WriteFile(file.string(), after);
    ASSERT_TRUE(IsOk(OpenChanged(line(before), line(after))));
    EXPECT_EQ(Scanned(forged_.get()), rows_);
    return;
  }
  FAIL() << "no such file";
}

}  // namespace
}  // namespace fused_embedding
