// Whatever a table above a cold store is asked for, each call to the store fails once, or the disk
// breaks for a while: the error names the path, nothing is lost, and the next try does the same as
// in a table in DRAM.

#include "tests/cpp/cold_tier_testing.h"
#include "tests/cpp/temporary_folder.h"
#include "tf_ops/core/checkpoint/checkpoint.h"

namespace fused_embedding {
namespace {

// What a table is asked for.
struct Operation {
  const char* name;
  std::function<Status(EmbeddingTable* table)> run;
  // After an error all is as before; else some of the work may be done.
  bool is_whole = true;
};

Status ReadRows(EmbeddingTable* table) {
  return LookUp(table, KeyRange(0, 3500), {{}, -1, false}).status;
}
Status Prefetch(EmbeddingTable* table) {
  const Ints keys = KeyRange(0, 3500);
  return table->Prefetch(SerialExec(), View(keys));
}
Status Metadata(EmbeddingTable* table) {
  const Ints keys = KeyRange(0, 3500);
  Ints frequencies(keys.size()), versions(keys.size());
  return table->Metadata(SerialExec(), View(keys), AsSpan(frequencies), AsSpan(versions));
}
Status AddSlots(EmbeddingTable* table) {
  const std::vector<Slot> slots = {{"first", 8, 0.5}, {"second", 1, 0.25}};
  return table->EnsureSlots(AsSpan(slots));
}
Status Clear(EmbeddingTable* table) { return table->Clear(); }
Status Upsert(EmbeddingTable* table) {
  return UpsertFloats(table, KeyRange(2000, 4000), std::vector<float>(2000 * 8, 7.0f));
}
Status Erase(EmbeddingTable* table) {
  const Ints keys = KeyRange(500, 2500);
  int64_t num_erased = 0;
  return table->Erase(SerialExec(), View(keys), &num_erased);
}
Status Expire(EmbeddingTable* table) {
  Expiry input;
  input.step = 12;
  input.steps_to_live = 6;
  int64_t num_expired = 0;
  return table->Expire(SerialExec(), input, &num_expired);
}

class ColdTierFaults : public ::testing::Test {
 protected:
  ColdTierFaults() {
    config_.storage = StorageConfig();
    const auto filled = MakeTable(config_);
    Fill(filled.get());
    filled_ = ContentsOf(*filled);
    other_ = MakeTable(config_);
    for (int64_t key = 1000; key < 5000; key += 500) {
      EXPECT_TRUE(IsOk(LookUp(other_.get(), KeyRange(key, key + 500), {{}, key}).status));
    }
    EXPECT_TRUE(IsOk(AddSlots(other_.get())));
    EXPECT_TRUE(IsOk(SaveTable(*other_, other_path_)));
  }

  std::unique_ptr<EmbeddingTable> MakeTiered() {
    TableConfig config =
        TieredConfig(folder_.path() + "/tier_" + std::to_string(num_tables_++), 32 << 10);
    config.storage.open = [this](const ColdStoreOptions& options, StorePtr* store) {
      FE_RETURN_IF_ERROR(faults_.Begin("open", options.path));
      StorePtr inner;
      FE_RETURN_IF_ERROR(MemoryColdStore::Open(options, &inner));
      *store = std::make_unique<FaultyColdStore>(options, std::move(inner), &faults_);
      return Status();
    };
    return MakeTable(config);
  }

  // Rows of several steps, some of which the store has as they are; and some that it has no more.
  static void Fill(EmbeddingTable* table) {
    for (int64_t step = 1; step < 11; ++step) {
      const Ints keys = KeyRange(step * 300 - 300, step * 300 + 200);
      const Lookup lookup = LookUp(table, keys, {{}, step});
      ASSERT_TRUE(IsOk(lookup.status));
      ASSERT_TRUE(
          IsOk(table->ForEachRow(SerialExec(), View(keys), View(lookup.handles), AddToRows)));
      if (step == 8) ContentsOf(*table);
    }
    ASSERT_EQ(EraseKeys(table, KeyRange(700, 750)), 50);
  }

  Status Restore(EmbeddingTable* table) const {
    return RestoreTable(SerialExec(), {{&other_path_, 1}}, PartitionFilter(), table);
  }
  Status Save(EmbeddingTable* table) const {
    fs::remove(folder_.path() + "/save");
    return SaveTable(*table, folder_.path() + "/save");
  }
  TableContents Saved() {
    const auto table = MakeTiered();
    const std::string path = folder_.path() + "/save";
    EXPECT_TRUE(IsOk(RestoreTable(SerialExec(), {{&path, 1}}, PartitionFilter(), table.get())));
    return ContentsOf(*table);
  }

  ::testing::AssertionResult IsNamed(const Status& status) const {
    return Fails(status, StatusCode::kFailedPrecondition,
                 {(folder_.path() + "/tier_").c_str(), "Input/output error"});
  }

  std::vector<Operation> Operations() const {
    return {{"lookup", ReadRows},
            {"prefetch", Prefetch},
            {"metadata", Metadata},
            {"slots", AddSlots},
            {"clear", Clear},
            {"save", [this](EmbeddingTable* table) { return Save(table); }},
            {"upsert", Upsert, false},
            {"erase", Erase, false},
            {"expire", Expire, false},
            {"restore", [this](EmbeddingTable* table) { return Restore(table); }, false}};
  }

  // Runs it with an error in call `number`; returns whether there was one in it.
  bool FailOnce(const Operation& operation, int64_t number, const TableContents& want);
  void Break(const Operation& operation, int64_t num_calls, const TableContents& want);

  TableContents WantOf(const Operation& operation) const {
    const auto model = MakeTable(config_);
    Fill(model.get());
    EXPECT_TRUE(IsOk(operation.run(model.get())));
    return ContentsOf(*model);
  }

  const TemporaryFolder folder_;
  const std::string other_path_ = folder_.path() + "/other";
  int num_tables_ = 0;
  Faults faults_;
  TableConfig config_ = TieredConfig("");  // in DRAM
  TableContents filled_;
  std::unique_ptr<EmbeddingTable> other_;  // is in `other_path_`
};

bool ColdTierFaults::FailOnce(const Operation& operation, int64_t number,
                              const TableContents& want) {
  const auto table = MakeTiered();
  Fill(table.get());
  faults_.rows_until_tear = number % 2 == 0 ? -1 : 10;
  faults_.calls_until_error = number;
  const Status failed = operation.run(table.get());
  const bool was_reached = faults_.calls_until_error < 0;
  faults_.calls_until_error = -1;
  faults_.rows_until_tear = -1;
  if (!failed.ok()) {
    EXPECT_TRUE(IsNamed(failed));
    if (operation.is_whole) {
      EXPECT_TRUE(ContentsOf(*table) == filled_) << "it has changed the table";
      EXPECT_FALSE(fs::exists(folder_.path() + "/save"));
    }
    EXPECT_TRUE(IsOk(operation.run(table.get())));
  }
  EXPECT_TRUE(ContentsOf(*table) == want);
  if (fs::exists(folder_.path() + "/save")) {
    EXPECT_TRUE(Saved() == want);
  }
  return was_reached;
}

TEST_F(ColdTierFaults, AnyCallOfAnyOperationFailsOnce) {
  for (const Operation& operation : Operations()) {
    const TableContents want = WantOf(operation);
    fs::remove(folder_.path() + "/save");
    // The first ones in turn, and then fewer and fewer: an operation may have hundreds.
    int64_t number = 0;
    while (FailOnce(operation, number, want) && !HasFailure()) number += 1 + number / 4;
    EXPECT_GT(number, 0) << operation.name << " needs no store";
    ASSERT_FALSE(HasFailure()) << operation.name << ", call " << number;
  }
}

void ColdTierFaults::Break(const Operation& operation, int64_t num_calls,
                           const TableContents& want) {
  const auto table = MakeTiered();
  Fill(table.get());
  faults_.calls_until_error = num_calls;
  const Status failed = operation.run(table.get());
  faults_.is_broken = true;
  for (int i = 0; i < 3; ++i) {
    const Status again = operation.run(table.get());
    if (!again.ok()) {
      EXPECT_TRUE(IsNamed(again));
    }
  }
  faults_.is_broken = false;
  faults_.calls_until_error = -1;
  EXPECT_TRUE(IsOk(operation.run(table.get())));
  EXPECT_TRUE(ContentsOf(*table) == want);
}

TEST_F(ColdTierFaults, ADiskThatIsBrokenForAWhile) {
  for (const Operation& operation : Operations()) {
    const TableContents want = WantOf(operation);
    for (int64_t num_calls = 0; num_calls < 8; ++num_calls) {
      Break(operation, num_calls, want);
      ASSERT_FALSE(HasFailure()) << operation.name << ", after " << num_calls << " calls";
    }
  }
}

// Or says that it could not be emptied, by a disk that stays broken.
TEST_F(ColdTierFaults, ARestoreThatBreaksOffLeavesTheTableEmpty) {
  for (const bool stays_broken : {false, true}) {
    faults_.stays_broken = stays_broken;
    int num_failed = 0, num_told = 0;
    for (int64_t number = 0; number < 300; number += 1 + number / 4) {
      const auto table = MakeTiered();
      Fill(table.get());
      faults_.calls_until_error = number;
      const Status restored = Restore(table.get());
      faults_.calls_until_error = -1;
      faults_.is_broken = false;
      if (restored.ok()) continue;
      ++num_failed;
      EXPECT_TRUE(IsNamed(restored));
      const TableContents after = ContentsOf(*table);
      const bool is_told = restored.message().find("has a part of") != std::string::npos;
      num_told += is_told;
      EXPECT_TRUE(after == filled_ || after == TableContents() || is_told)
          << "call " << number << ": " << after.rows.size() << " rows";
      EXPECT_TRUE(IsOk(Restore(table.get())));
    }
    EXPECT_GT(num_failed, 0);
    EXPECT_EQ(num_told > 0, stays_broken);
  }
}

}  // namespace
}  // namespace fused_embedding
