// Series of saves: one of all of a table, and more of what changed since.

#include <atomic>
#include <thread>

#include "tests/cpp/checkpoint_testing.h"
#include "tf_ops/core/checkpoint/format.h"
#include "tf_ops/core/checkpoint/table_file.h"

namespace fused_embedding {
namespace {

using Paths = std::vector<std::string>;

class Incremental : public CheckpointTest {
 protected:
  // The files of a series that is saved to Path(name + number of the save), links among them.
  struct SeriesOfTable {
    std::string name;
    Paths files;
    int64_t num_saves = 0;
  };

  // The names of the links and the file of the next save.
  Paths NextFiles(const SeriesOfTable& series) const {
    Paths files;
    for (size_t i = 0; i <= series.files.size(); ++i) {
      files.push_back(
          Path(series.name + std::to_string(series.num_saves) + "-" + std::to_string(i)));
    }
    return files;
  }

  Status TrySave(EmbeddingTable* table, SeriesOfTable* series) {
    const Paths files = NextFiles(*series);
    const Paths links(files.begin(), files.end() - 1);
    const Status status =
        SaveIncrement({files.back(), AsSpan(series->files), AsSpan(links)}, table);
    if (status.ok()) {
      series->files = files;
      ++series->num_saves;
    }
    return status;
  }

  void Save(EmbeddingTable* table, SeriesOfTable* series) {
    ASSERT_TRUE(IsOk(TrySave(table, series)));
  }

  static Status RestoreSeries(const Paths& files, EmbeddingTable* table,
                              const PartitionFilter& filter = {}) {
    return RestoreTable(SerialExec(), {AsSpan(files), static_cast<int64_t>(files.size())}, filter,
                        table);
  }

  // A table that is restored from the series has what this one has.
  void ExpectRestores(const SeriesOfTable& series, const EmbeddingTable& table) {
    const TablePtr restored = MakeTable(table.config());
    Train({1, 2, 3, 4, 5}, 9, 9, restored.get());
    ASSERT_TRUE(IsOk(RestoreSeries(series.files, restored.get())));
    EXPECT_TRUE(ContentOf(*restored) == ContentOf(table));
    EXPECT_EQ(restored->step(), table.step());
    EXPECT_EQ(restored->layout().slots, table.layout().slots);
    std::vector<char> want, got;
    ASSERT_TRUE(IsOk(table.CopyBloom(&want)));
    ASSERT_TRUE(IsOk(restored->CopyBloom(&got)));
    EXPECT_TRUE(want == got) << "counters of the Bloom filter";
  }

  static std::vector<int64_t> RowKeysOf(const Paths& files, const RowLayout& layout) {
    FileRows rows;
    EXPECT_TRUE(IsOk(ReadRows(files.back(), layout, &rows)));
    std::sort(rows.keys.begin(), rows.keys.end());
    return rows.keys;
  }
};

struct SaveKind {
  const char* name;
  AdmissionKind admission;
  int64_t max_capacity;
  EvictionPolicy eviction;
};
class IncrementalModel : public Incremental, public ::testing::WithParamInterface<SaveKind> {
 protected:
  // Something that changes a table at random; true for a save.
  bool Step(Random* random, EmbeddingTable* table, SeriesOfTable* series) {
    std::vector<int64_t> keys;
    for (int64_t i = RandomInt(random, 1, 20); i > 0; --i) {
      keys.push_back(RandomInt(random, -60, 60));
    }
    const int64_t step = table->step();
    int64_t num_removed = 0;
    switch (RandomInt(random, 0, 13)) {
      case 0:
        EXPECT_TRUE(IsOk(table->Erase(SerialExec(), View(keys), &num_removed)));
        return false;
      case 1:
        EXPECT_TRUE(IsOk(table->Expire(SerialExec(), {step, 6, 0.0}, &num_removed)));
        return false;
      case 2: {
        const std::vector<float> values(keys.size() * 3, static_cast<float>(step));
        EXPECT_TRUE(IsOk(UpsertFloats(table, keys, values)));
        return false;
      }
      case 3:
        AddSlots({kAccumulator}, table);
        if (step > 40) AddSlots({kNorm}, table);
        return false;
      case 4:  // A save that fails, by what is in its way, or of which nobody knows.
        if (series->files.empty()) return false;
        if (RandomBool(random)) {
          SeriesOfTable forgotten = *series;
          forgotten.name = "forgotten";
          Save(table, &forgotten);
        } else {
          Paths links = NextFiles(*series);
          links.pop_back();
          EXPECT_FALSE(
              SaveIncrement({Path("no/folder"), AsSpan(series->files), AsSpan(links)}, table).ok());
        }
        return false;
      case 5:
        if (RandomInt(random, 0, 5) == 0) series->files.clear();
        Save(table, series);
        return true;
      case 6:
      case 7:
        Scramble(keys, random, table);
        return false;
      default:
        table->AdvanceStep();
        Train(keys, 1, step, table);
        return false;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(
    Incremental, IncrementalModel,
    ::testing::Values(SaveKind{"All", AdmissionKind::kAll, 0, EvictionPolicy::kNone},
                      SaveKind{"Counter", AdmissionKind::kCounter, 0, EvictionPolicy::kNone},
                      SaveKind{"Bloom", AdmissionKind::kBloom, 0, EvictionPolicy::kNone},
                      SaveKind{"Lru", AdmissionKind::kAll, 40, EvictionPolicy::kLru},
                      SaveKind{"CounterLfu", AdmissionKind::kCounter, 40, EvictionPolicy::kLfu}),
    [](const auto& info) { return info.param.name; });

TEST_P(IncrementalModel, SequencesOfChangesAndSaves) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    TableConfig config = ConfigOf();
    config.admission = {GetParam().admission, 3, 500, 3};
    if (GetParam().admission == AdmissionKind::kAll) config.admission = {};
    config.max_capacity = GetParam().max_capacity;
    config.eviction = GetParam().eviction;
    config.check_mode = CheckMode::kIgnore;
    const TablePtr table = MakeTable(config);
    SeriesOfTable series{"s" + std::to_string(seed) + "-", {}, 0};
    size_t longest = 0;
    for (int i = 0; i < 400; ++i) {
      if (Step(&random, table.get(), &series)) ExpectRestores(series, *table);
      if (HasFatalFailure() || HasNonfatalFailure()) return;
      longest = std::max(longest, series.files.size());
    }
    EXPECT_GT(longest, 4u);
  }
}

TEST_F(Incremental, ASaveHasWhatChangedAndNothingElse) {
  TableConfig config = ConfigOf();
  config.admission = {AdmissionKind::kCounter, 2, 0, 0};
  const TablePtr table = MakeTable(config);
  Random random(1);
  const std::vector<int64_t> keys = RandomKeys(20000, &random);
  Train(keys, 2, 1, table.get());
  AddSlots({kAccumulator}, table.get());
  SeriesOfTable series{"s", {}, 0};
  const int64_t memory = table->Statistics().memory_bytes;
  Save(table.get(), &series);
  const int64_t added = table->Statistics().memory_bytes - memory;
  EXPECT_GE(added, 20000 * 3 / 8);
  EXPECT_LE(added, 2 * 20000 * 3 / 8) << "bits of the rows to come included";
  const auto full_bytes = fs::file_size(series.files.back());

  const int64_t looked_up[] = {keys[7], 123456};
  std::vector<char> values(24);
  LookupOutput out;
  out.values = values.data();
  ASSERT_TRUE(IsOk(table->Find(SerialExec(), {{looked_up, 2}, {}, 5}, &out)));
  int64_t frequencies[2], versions[2];
  ASSERT_TRUE(IsOk(table->Metadata(SerialExec(), {looked_up, 2}, {frequencies, 2}, {versions, 2})));
  Save(table.get(), &series);
  EXPECT_EQ(RowKeysOf(series.files, config.layout), Ints{}) << "reading is no change";
  EXPECT_LT(fs::file_size(series.files.back()), 1000u);

  Train({keys[3]}, 1, 9, table.get());
  Scramble({keys[5]}, &random, table.get());
  ASSERT_TRUE(IsOk(UpsertFloats(table.get(), {keys[9]}, {1, 2, 3})));
  Train({7777777, 8888888}, 1, 9, table.get());  // counted, not admitted
  Train({9999999}, 2, 9, table.get());
  ASSERT_EQ(EraseKeys(table.get(), {keys[11], keys[12], 555555555}), 2);
  Train({keys[12]}, 2, 9, table.get());  // back again
  Save(table.get(), &series);
  Ints changed = {keys[3], keys[5], keys[9], keys[12], 9999999};
  std::sort(changed.begin(), changed.end());
  EXPECT_EQ(RowKeysOf(series.files, config.layout), changed);
  FileRows rows;
  ASSERT_TRUE(IsOk(ReadRows(series.files.back(), config.layout, &rows)));
  EXPECT_TRUE(rows.is_incremental);
  EXPECT_EQ(rows.removed_keys, Ints{keys[11]});
  EXPECT_EQ(rows.values.size(), changed.size() * 12);
  EXPECT_LT(fs::file_size(series.files.back()), 1500u);
  EXPECT_GT(full_bytes, 20000u * 40);
  ExpectRestores(series, *table);
  ASSERT_TRUE(IsOk(ReadRows(series.files.front(), config.layout, &rows)));
  EXPECT_FALSE(rows.is_incremental);
  EXPECT_EQ(rows.keys.size(), keys.size());
}

// A key that comes and goes between two saves is of no interest to the next one.
TEST_F(Incremental, TheListOfRemovedKeysIsNotLongerThanTheTableWas) {
  TableConfig config = ConfigOf();
  config.max_capacity = 100;
  config.eviction = EvictionPolicy::kLru;
  const TablePtr table = MakeTable(config);
  SeriesOfTable series{"s", {}, 0};
  for (int64_t key = 0; key < 100; ++key) Train({key}, 1, key, table.get());
  Save(table.get(), &series);
  const int64_t size = table->size();
  for (int64_t key = 100; key < 20000; ++key) Train({key}, 1, key, table.get());
  ASSERT_GT(table->Statistics().evictions, 19000);
  Save(table.get(), &series);
  FileRows rows;
  ASSERT_TRUE(IsOk(ReadRows(series.files.back(), config.layout, &rows)));
  EXPECT_EQ(static_cast<int64_t>(rows.removed_keys.size()), size);
  ExpectRestores(series, *table);
}

TEST_F(Incremental, ASaveNeedsNoOtherThanItsOwnFiles) {
  const TablePtr table = MakeTable(ConfigOf());
  SeriesOfTable series{"s", {}, 0};
  for (int64_t save = 0; save < 5; ++save) {
    const Paths before = series.files;
    Train({save, save + 1}, 1, save, table.get());
    Save(table.get(), &series);
    for (const std::string& path : before) ASSERT_TRUE(fs::remove(path));
    EXPECT_EQ(Files().size(), static_cast<size_t>(save + 1));
  }
  ExpectRestores(series, *table);
}

class BrokenSeries : public Incremental {
 protected:
  void SetUp() override {
    Incremental::SetUp();
    table_ = MakeTable(ConfigOf());
    for (int64_t save = 0; save < 4; ++save) {
      Train({save, 100 + save}, 1, save, table_.get());
      Save(table_.get(), &series_);
    }
    target_ = MakeTable(ConfigOf());
    Train({7, 8, 9}, 2, 1, target_.get());
    before_ = ContentOf(*target_);
  }

  ::testing::AssertionResult IsRefused(const Paths& files, StatusCode code,
                                       std::initializer_list<const char*> reasons) {
    const Status status = RestoreSeries(files, target_.get());
    EXPECT_TRUE(ContentOf(*target_) == before_) << "the table was harmed";
    return Fails(status, code, reasons);
  }

  TablePtr table_, target_;
  SeriesOfTable series_{"s", {}, 0};
  Content before_;
};

TEST_F(BrokenSeries, IsRefused) {
  const Paths& good = series_.files;
  const auto invalid = StatusCode::kInvalidArgument;
  EXPECT_TRUE(IsRefused({good[0], good[2], good[1], good[3]}, invalid,
                        {good[2].c_str(), "does not continue", good[0].c_str(), "in order"}));
  EXPECT_TRUE(IsRefused({good[0], good[2], good[3]}, invalid, {"does not continue"}));
  EXPECT_TRUE(IsRefused({good[0], good[1], good[1]}, invalid, {"does not continue"}));
  EXPECT_TRUE(IsRefused({good[1], good[2]}, invalid,
                        {good[1].c_str(), "is an incremental save", "the full one first"}));
  EXPECT_TRUE(IsRefused({good[3]}, invalid, {"is an incremental save"}));
  EXPECT_TRUE(IsRefused({good[0], good[0]}, invalid, {"does not continue"}));
  // Of the same table, and of another one.
  SeriesOfTable other{"o", {}, 0};
  Save(table_.get(), &other);
  EXPECT_TRUE(IsRefused({other.files[0], good[1]}, invalid, {"does not continue"}));
  const TablePtr twin = MakeTable(ConfigOf());
  SeriesOfTable foreign{"f", {}, 0};
  Save(twin.get(), &foreign);
  Train({5}, 1, 1, twin.get());
  Save(twin.get(), &foreign);
  EXPECT_TRUE(IsRefused({good[0], foreign.files[1]}, invalid, {"does not continue"}));
  EXPECT_TRUE(IsRefused({Saved(*table_), good[1]}, invalid, {"does not continue"}));
  EXPECT_TRUE(IsRefused({good[0], Path("absent")}, StatusCode::kFailedPrecondition, {"absent"}));
  EXPECT_TRUE(IsOk(RestoreSeries({good[0], good[1]}, target_.get())));
  EXPECT_EQ(target_->size(), 4);
}

TEST_F(BrokenSeries, EveryFlippedByteAndTruncationIsFound) {
  const std::string bytes = ReadFile(series_.files[2]);
  Paths files = series_.files;
  files[2] = Path("damaged");
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string flipped = bytes;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    WriteFile(files[2], flipped);
    ASSERT_TRUE(IsRefused(files, StatusCode::kDataLoss, {files[2].c_str()})) << "byte " << i;
    WriteFile(files[2], bytes.substr(0, i));
    ASSERT_TRUE(IsRefused(files, StatusCode::kDataLoss, {files[2].c_str()})) << i << " bytes";
  }
  WriteFile(files[2], bytes);
  EXPECT_TRUE(IsOk(RestoreSeries(files, target_.get())));
  EXPECT_TRUE(ContentOf(*target_) == ContentOf(*table_));
}

TEST_F(BrokenSeries, ATableThatDoesNotKnowWhatChangedSaysSo) {
  const auto failed = StatusCode::kFailedPrecondition;
  const Paths files = series_.files;
  Paths links;
  for (size_t i = 0; i < files.size(); ++i) links.push_back(Path("link" + std::to_string(i)));
  const auto save = [&](EmbeddingTable* table, const std::string& path) {
    return SaveIncrement({path, AsSpan(files), AsSpan(links)}, table);
  };
  EXPECT_TRUE(Fails(save(target_.get(), Path("x")), failed, {"does not know what changed"}));
  EXPECT_TRUE(Fails(save(table_.get(), files[1]), failed, {"cannot replace", "save to another"}));
  EXPECT_TRUE(IsInvalid(SaveIncrement({Path("x"), AsSpan(files), {}}, table_.get()),
                        {"link_paths", "4 base_paths, got 0"}));
  const Paths plain = {Saved(*table_)}, absent = {Path("absent")}, one = {Path("y")};
  EXPECT_TRUE(Fails(SaveIncrement({Path("x"), AsSpan(plain), AsSpan(one)}, table_.get()), failed,
                    {"is not of a series"}));
  EXPECT_TRUE(Fails(SaveIncrement({Path("x"), AsSpan(absent), AsSpan(one)}, table_.get()), failed,
                    {"absent", "No such file"}));
  Paths lost_links = links;
  lost_links[0] = Path("no/folder");
  EXPECT_TRUE(Fails(SaveIncrement({Path("x"), AsSpan(files), AsSpan(lost_links)}, table_.get()),
                    failed, {"hard link", "no/folder"}));
  EXPECT_EQ(Files().count("x"), 0u);
  EXPECT_EQ(Files().count("link1"), 0u) << "links of a save that failed are taken back";
  // None of these costs a change.
  EXPECT_TRUE(IsOk(save(table_.get(), Path("x"))));
  EXPECT_TRUE(IsOk(table_->Clear()));
  EXPECT_TRUE(Fails(save(table_.get(), Path("x")), failed, {"does not know what changed"}));
  SeriesOfTable again{"again", {}, 0};
  Train({1}, 1, 1, table_.get());
  Save(table_.get(), &again);
  Train({2}, 1, 1, table_.get());
  Save(table_.get(), &again);
  ExpectRestores(again, *table_);
}

// Files of all partitions, into another number of them.
TEST_F(Incremental, PartitionsIntoAnyOtherNumber) {
  Random random(3);
  TableConfig config = ConfigOf();
  config.admission = {AdmissionKind::kCounter, 3, 0, 0};
  for (int64_t from = 1; from <= 3; ++from) {
    std::vector<TablePtr> tables;
    std::vector<SeriesOfTable> series;
    for (int64_t p = 0; p < from; ++p) {
      tables.push_back(MakeTable(config));
      series.push_back({"f" + std::to_string(from) + "p" + std::to_string(p) + "-", {}, 0});
    }
    for (int64_t save = 0; save < 4; ++save) {
      for (int64_t p = 0; p < from; ++p) {
        std::vector<int64_t> mine;
        for (int64_t key = save * 50; key < save * 50 + 150; ++key) {
          if (PartitionOfKey(PartitionStrategy::kHash, key, from) == p) mine.push_back(key);
        }
        EmbeddingTable* table = tables[static_cast<size_t>(p)].get();
        Train(mine, 2, save, table);
        if (save == 2) AddSlots({kNorm}, table);
        Scramble(mine, &random, table);
        EraseKeys(table, {mine[0], mine[3]});
        Save(table, &series[static_cast<size_t>(p)]);
      }
    }
    Content want;
    for (const TablePtr& table : tables) Collect(*table, &want);
    ASSERT_GT(want.rows.size(), 100u);
    ASSERT_GT(want.filtered.size(), 50u);
    Paths files;
    for (size_t link = 0; link < 4; ++link) {
      for (const SeriesOfTable& one : series) files.push_back(one.files[link]);
    }
    for (int64_t to = 1; to <= 3; ++to) {
      Content got;
      for (int64_t p = 0; p < to; ++p) {
        const TablePtr table = MakeTable(config);
        ASSERT_TRUE(IsOk(RestoreTable(SerialExec(), {AsSpan(files), 4},
                                      {PartitionStrategy::kHash, p, to}, table.get())));
        Collect(*table, &got);
      }
      EXPECT_TRUE(got == want) << from << " into " << to;
    }
  }
}

TEST_F(Incremental, FilesMustBeAWholeNumberOfSaves) {
  const TablePtr table = MakeTable(ConfigOf());
  const Paths files = {"a", "b", "c"};
  EXPECT_TRUE(IsInvalid(RestoreTable(SerialExec(), {AsSpan(files), 2}, {}, table.get()),
                        {"each of 2 saves", "3 in all"}));
  EXPECT_TRUE(IsInvalid(RestoreTable(SerialExec(), {AsSpan(files), 0}, {}, table.get()),
                        {"each of 0 saves"}));
}

TEST_F(Incremental, AMatrixIsInTheFirstSaveOnly) {
  TableConfig config = ConfigOf();
  config.initializer.kind = InitializerKind::kMatrix;
  config.initializer.matrix.assign(static_cast<size_t>(5000 * config.layout.value_bytes()), 'm');
  const TablePtr table = MakeTable(config);
  SeriesOfTable series{"s", {}, 0};
  Save(table.get(), &series);
  Train({1, 2}, 1, 1, table.get());
  Save(table.get(), &series);
  EXPECT_GT(fs::file_size(series.files[0]), 60000u);
  EXPECT_LT(fs::file_size(series.files[1]), 1000u);
  ExpectRestores(series, *table);
  config.initializer.matrix.assign(12, 'x');
  const TablePtr other = MakeTable(config);
  ASSERT_TRUE(IsOk(RestoreSeries(series.files, other.get())));
  EXPECT_EQ(other->initializer().matrix.size(), 60000u);
}

TEST_F(Incremental, ABloomFilterIsSavedByTheLine) {
  for (const int64_t min_frequency : {5, 300}) {  // counters of 8 and 16 bits
    TableConfig config = ConfigOf();
    config.admission = {AdmissionKind::kBloom, min_frequency, 2000000, 3};
    const TablePtr table = MakeTable(config);
    Random random(8);
    const auto count = static_cast<int32_t>(min_frequency - 2);
    Train(RandomKeys(20000, &random), count, 1, table.get());
    SeriesOfTable series{"s" + std::to_string(min_frequency), {}, 0};
    Save(table.get(), &series);
    EXPECT_GT(fs::file_size(series.files.back()), 2000000u);
    for (int save = 0; save < 3; ++save) {
      Train(RandomKeys(100, &random), 1, 2, table.get());
      Save(table.get(), &series);
      EXPECT_LT(fs::file_size(series.files.back()), 100u * (72 + 40) + 1000);
      ExpectRestores(series, *table);
    }
  }
}

TEST_F(Incremental, TrainingGoesOnWhileItIsSaved) {
  TableConfig config = ConfigOf();
  config.admission = {AdmissionKind::kCounter, 3, 0, 0};
  const TablePtr table = MakeTable(config);
  AddSlots({kAccumulator}, table.get());
  std::atomic<bool> is_done{false};
  std::atomic<int64_t> num_batches{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Random random(t);
      while (!is_done) {
        std::vector<int64_t> keys;
        for (int i = 0; i < 50; ++i) keys.push_back(RandomInt(&random, 0, 3000));
        Train(keys, 2, 1, table.get());
        Scramble(keys, &random, table.get());
        if (RandomInt(&random, 0, 3) == 0) EraseKeys(table.get(), {keys[0], keys[1]});
        ++num_batches;
      }
    });
  }
  SeriesOfTable series{"s", {}, 0};
  for (int save = 0; save < 30; ++save) {
    const int64_t before = num_batches;
    while (num_batches < before + 3) std::this_thread::yield();
    Save(table.get(), &series);
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
  Save(table.get(), &series);
  ASSERT_GT(table->size(), 100);
  ExpectRestores(series, *table);
}

// Version 1 has no removed keys and no place in a series.
TEST_F(Incremental, FilesOfVersion1AreRead) {
  const std::string totals = EncodeTotals({1, 2, 3, 4, 5});
  Totals decoded;
  decoded.num_removed = 77;
  ASSERT_TRUE(IsOk(DecodeTotals({totals.data(), 32}, &decoded)));
  EXPECT_EQ(decoded.bloom_bytes, 4);
  EXPECT_EQ(decoded.num_removed, 0);
  ASSERT_TRUE(IsOk(DecodeTotals(AsSpan(totals), &decoded)));
  EXPECT_EQ(decoded.num_removed, 5);
  EXPECT_FALSE(DecodeTotals({totals.data(), 36}, &decoded).ok());
}

}  // namespace
}  // namespace fused_embedding
