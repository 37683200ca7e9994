#include "tf_ops/core/table/row_slab.h"

#include "tests/cpp/core_testing.h"
#include "tests/cpp/page_memory_testing.h"

namespace fused_embedding {
namespace {

uint32_t AddRow(RowSlab* slab, int64_t key, char fill) {
  EXPECT_TRUE(IsOk(slab->Reserve(1)));
  const uint32_t row = slab->Add(key);
  std::memset(slab->row(row) + sizeof(RowHeader), fill,
              static_cast<size_t>(slab->row_bytes()) - sizeof(RowHeader));
  return row;
}

TEST(RowSlabTest, RowsKeepTheirPlaceWhileOthersCome) {
  RowSlab slab(1024);
  std::vector<const char*> rows;
  constexpr int64_t kRows = 40000;  // three chunks
  for (int64_t i = 0; i < kRows; ++i) {
    rows.push_back(slab.row(AddRow(&slab, i, static_cast<char>(i))));
  }
  for (int64_t i = 0; i < kRows; ++i) {
    ASSERT_EQ(slab.row(i), rows[static_cast<size_t>(i)]);
    ASSERT_EQ(slab.header(i)->key, i);
    ASSERT_EQ(slab.row(i)[1023], static_cast<char>(i));
  }
}

TEST(RowSlabTest, DeadRowsAreToldApartAndUsedAgain) {
  RowSlab slab(24);
  for (int64_t key = 0; key < 5; ++key) AddRow(&slab, key, 'a');
  slab.Remove(1);
  slab.Remove(3);
  EXPECT_EQ(slab.size(), 3);
  EXPECT_EQ(slab.num_rows(), 5);
  EXPECT_FALSE(slab.IsAlive(1));
  EXPECT_FALSE(slab.IsAlive(3));
  EXPECT_FALSE(slab.IsAlive(5));
  EXPECT_TRUE(slab.IsAlive(4));
  EXPECT_EQ(AddRow(&slab, 7, 'b'), 3u);
  EXPECT_EQ(AddRow(&slab, 8, 'b'), 1u);
  EXPECT_EQ(AddRow(&slab, 9, 'b'), 5u);
  EXPECT_EQ(slab.size(), 6);
}

TEST(RowSlabTest, ResizedRowsKeepTheirNumbers) {
  RowSlab slab(24);
  for (int64_t key = 0; key < 1000; ++key) AddRow(&slab, key, static_cast<char>(key));
  slab.Remove(17);
  slab.Remove(500);
  ASSERT_TRUE(IsOk(slab.Resize(40, [](const char* from, char* to) {
    std::memcpy(to, from, 24);
    std::memset(to + 24, 'z', 16);
  })));
  EXPECT_EQ(slab.row_bytes(), 40);
  for (int64_t row = 0; row < 1000; ++row) {
    ASSERT_EQ(slab.IsAlive(row), row != 17 && row != 500);
    if (!slab.IsAlive(row)) continue;
    EXPECT_EQ(slab.header(row)->key, row);
    EXPECT_EQ(slab.row(row)[23], static_cast<char>(row));
    EXPECT_EQ(slab.row(row)[39], 'z');
  }
  EXPECT_EQ(AddRow(&slab, 1, 'c'), 500u);
  EXPECT_EQ(AddRow(&slab, 2, 'c'), 17u);
  EXPECT_EQ(AddRow(&slab, 3, 'c'), 1000u);
}

TEST(RowSlabTest, MemoryIsCountedWhereItIsTouched) {
  RowSlab slab(144);
  ASSERT_TRUE(IsOk(slab.Reserve(1000000)));
  EXPECT_EQ(slab.memory_bytes(), 0);
  AddRow(&slab, 1, 'a');
  EXPECT_EQ(slab.memory_bytes(), 4096);
  for (int64_t i = 0; i < 20000; ++i) AddRow(&slab, i, 'a');
  EXPECT_EQ(slab.memory_bytes(), 4 << 20);
}

TEST(RowSlabTest, TheLastOfExpectedRowsAreOnSmallPages) {
  for (const int64_t num_rows : {513, 1500, 4096 + 5}) {  // some pages of 2 MiB and a part of one
    RowSlab slab(4096);
    slab.ExpectRows(num_rows);
    for (int64_t row = 0; row < num_rows; ++row) AddRow(&slab, row, 'a');
    EXPECT_EQ(slab.memory_bytes(), num_rows * 4096);
    AddRow(&slab, num_rows, 'a');  // others than were expected may come
    EXPECT_EQ(slab.memory_bytes(), (num_rows + 1) * 4096);
  }
}

TEST(RowSlabTest, TheFirstRowsMoveToAHugePageOnceTheyFillIt) {
  if (!MovesPages()) GTEST_SKIP() << "this system does not move pages to huge ones";
  RowSlab slab(1024);
  constexpr int64_t kPageRows = PageMemory::kHugePage / 1024;
  for (int64_t i = 0; i < kPageRows; ++i) AddRow(&slab, i, static_cast<char>(i));
  EXPECT_EQ(HugeBytesAround(slab.row(0)), 0);
  const char* const first = slab.row(0);
  AddRow(&slab, kPageRows, 'a');
  EXPECT_EQ(slab.row(0), first);
  // The system may run out of huge pages meanwhile.
  EXPECT_TRUE(HugeBytesAround(first) >= PageMemory::kHugePage || !MovesPages());
  for (int64_t i = 0; i < kPageRows; ++i) {
    ASSERT_EQ(slab.header(i)->key, i);
    ASSERT_EQ(slab.row(i)[1023], static_cast<char>(i));
  }
  ASSERT_TRUE(
      IsOk(slab.Resize(2048, [](const char* from, char* to) { std::memcpy(to, from, 1024); })));
  EXPECT_TRUE(HugeBytesAround(slab.row(0)) >= PageMemory::kHugePage || !MovesPages());
  EXPECT_EQ(slab.row(7)[1023], 7);
}

TEST(RowSlabTest, FirstRowsBeyondTheExpectedStayOnSmallPages) {
  RowSlab slab(1024);
  slab.ExpectRows(1000);
  for (int64_t i = 0; i < 5000; ++i) AddRow(&slab, i, static_cast<char>(i));
  EXPECT_EQ(HugeBytesAround(slab.row(0)), 0);
}

TEST(RowSlabTest, TooManyRowsAreResourceExhausted) {
  RowSlab slab(144);
  EXPECT_TRUE(Fails(slab.Reserve(int64_t{1} << 32), StatusCode::kResourceExhausted,
                    {"at most", "more shards"}));
  EXPECT_EQ(slab.size(), 0);
  AddRow(&slab, 1, 'a');
  EXPECT_EQ(slab.header(0)->key, 1);
}

}  // namespace
}  // namespace fused_embedding
