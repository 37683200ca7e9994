#include "tf_ops/core/table/serving_change.h"

#include "tests/cpp/table_testing.h"

namespace fused_embedding {
namespace {

// A change of a table of floats, with what it points at.
struct Change {
  Ints keys;
  std::vector<float> values;
  Ints removed_keys = {};
  bool is_full = false;

  TableChange Of(EmbeddingTable* table) const {
    TableChange change;
    change.table = table;
    change.content.keys = View(keys);
    change.content.values = reinterpret_cast<const char*>(values.data());
    change.removed_keys = View(removed_keys);
    change.is_full = is_full;
    return change;
  }
};

std::vector<float> Read(EmbeddingTable* table, const Ints& keys) {
  LookupArgs args;
  args.insert = false;
  return LookUp(table, keys, args).values;
}

TEST(ServingChange, SetsAndRemovesRowsOfAllTables) {
  const auto first = MakeTable(TestConfig()), second = MakeTable(TestConfig());
  ASSERT_TRUE(IsOk(UpsertFloats(first.get(), {1, 2}, {1, 1, 2, 2})));
  ASSERT_TRUE(IsOk(UpsertFloats(second.get(), {1, 2}, {1, 1, 2, 2})));
  const Change some{{2, 3}, {4, 4, 5, 5}, {1, 9}}, all{{3}, {6, 6}, {}, true};
  ServingLock lock;
  const std::vector<TableChange> changes = {some.Of(first.get()), all.Of(second.get())};
  ASSERT_TRUE(IsOk(PutChanges(SerialExec(), AsSpan(changes), &lock)));
  EXPECT_EQ(Read(first.get(), {1, 2, 3}), (std::vector<float>{0.5, 0.5, 4, 4, 5, 5}));
  EXPECT_EQ(Read(second.get(), {1, 2, 3}), (std::vector<float>{0.5, 0.5, 0.5, 0.5, 6, 6}));
  EXPECT_EQ(second->size(), 1);
  EXPECT_FALSE(lock.is_torn());
}

TEST(ServingChange, AFullTableHasRoomForWhatReplacesOtherRows) {
  TableConfig config = TestConfig();
  config.max_capacity = 2;
  const auto table = MakeTable(config);
  ASSERT_TRUE(IsOk(UpsertFloats(table.get(), {1, 2}, {1, 1, 2, 2})));
  const Change change{{3}, {3, 3}, {1}};
  ServingLock lock;
  const std::vector<TableChange> changes = {change.Of(table.get())};
  ASSERT_TRUE(IsOk(PutChanges(SerialExec(), AsSpan(changes), &lock)));
  EXPECT_EQ(Read(table.get(), {2, 3}), (std::vector<float>{2, 2, 3, 3}));
}

TEST(ServingChange, IsRefusedOnceOneFailedHalfWay) {
  TableConfig config = TestConfig();
  config.max_capacity = 1;
  const auto first = MakeTable(TestConfig()), second = MakeTable(config);
  const Change one{{1}, {1, 1}}, two{{1, 2}, {1, 1, 2, 2}};
  ServingLock lock;
  EXPECT_TRUE(IsOk(CheckNotTorn(lock)));
  const std::vector<TableChange> changes = {one.Of(first.get()), two.Of(second.get())};
  EXPECT_EQ(PutChanges(SerialExec(), AsSpan(changes), &lock).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(CheckNotTorn(lock).code(), StatusCode::kFailedPrecondition);
  const std::vector<TableChange> again = {one.Of(second.get())};
  EXPECT_EQ(PutChanges(SerialExec(), AsSpan(again), &lock).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(second->size(), 0);
}

}  // namespace
}  // namespace fused_embedding
