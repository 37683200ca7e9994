#include "tf_ops/core/table/tier/cache_clock.h"

#include <vector>

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

CacheClock FullClock(CacheStrategy strategy, int64_t num_rows) {
  CacheClock clock;
  clock.TurnOn(strategy);
  clock.Reserve(num_rows);
  for (int64_t row = 0; row < num_rows; ++row) clock.AddClean(row, 0, RowUse::kNone);
  return clock;
}

uint32_t Next(CacheClock* clock, int64_t num_rows,
              std::vector<uint32_t> frequencies = {0, 0, 0, 0}) {
  return clock->Next(num_rows, [&](uint32_t row) { return frequencies[row]; });
}

// Until rows that leave have this frequency on average. The hand then comes to the first row.
void RowsLeave(CacheClock* clock, uint32_t frequency) {
  for (int i = 0; i < 20000; ++i) Next(clock, 3, {frequency, frequency, frequency});
  while (Next(clock, 3, {frequency, frequency, frequency}) != 2) continue;
  for (int64_t row = 0; row < 3; ++row) clock->AddClean(row, 0, RowUse::kNone);
}

TEST(CacheClockTest, LruSparesARowOnceThatWasUsed) {
  CacheClock clock = FullClock(CacheStrategy::kLru, 4);
  for (int i = 0; i < 5; ++i) clock.Use(0, RowUse::kNow);
  clock.Use(2, RowUse::kNow);
  EXPECT_EQ(Next(&clock, 4), 1u);
  EXPECT_EQ(Next(&clock, 4), 3u);
  EXPECT_EQ(Next(&clock, 4), 0u);
  clock.Use(1, RowUse::kNow);
  EXPECT_EQ(Next(&clock, 4), 2u);
}

TEST(CacheClockTest, LfuSparesARowAsOftenAsItWasUsed) {
  CacheClock clock = FullClock(CacheStrategy::kLfu, 3);
  for (int i = 0; i < 100; ++i) clock.Use(0, RowUse::kNow);  // counts for 15
  clock.Use(1, RowUse::kNow);
  clock.Use(1, RowUse::kNow);
  EXPECT_EQ(Next(&clock, 3), 2u);
  clock.Remove(2);
  EXPECT_EQ(Next(&clock, 3), 1u);
  clock.Remove(1);
  EXPECT_EQ(Next(&clock, 3), 0u);
}

TEST(CacheClockTest, LfuSparesRowsThatComeBackMoreFrequentThanThoseThatLeave) {
  for (const CacheStrategy strategy : {CacheStrategy::kLfu, CacheStrategy::kLru}) {
    CacheClock clock = FullClock(strategy, 3);
    RowsLeave(&clock, 5);
    clock.AddClean(0, 7, RowUse::kNone);
    clock.AddClean(1, 8, RowUse::kNone);
    EXPECT_EQ(Next(&clock, 3), 0u);
    EXPECT_EQ(Next(&clock, 3), strategy == CacheStrategy::kLfu ? 2u : 1u);
  }
}

TEST(CacheClockTest, LfuSparesFrequentRowsOnceUntilTheyAreUsed) {
  for (const CacheStrategy strategy : {CacheStrategy::kLfu, CacheStrategy::kLru}) {
    CacheClock clock = FullClock(strategy, 3);
    RowsLeave(&clock, 5);
    const auto round = [&] {  // the rows in the order in which they leave, and come again
      std::vector<uint32_t> rows;
      for (int i = 0; i < 3; ++i) rows.push_back(Next(&clock, 3, {7, 8, 7}));
      return rows;
    };
    const bool is_lfu = strategy == CacheStrategy::kLfu;
    const std::vector<uint32_t> in_order = {0, 1, 2}, spared = {0, 2, 0};
    EXPECT_EQ(round(), is_lfu ? spared : in_order);
    if (!is_lfu) continue;
    for (int i = 0; i < 2; ++i) round();
    EXPECT_EQ(Next(&clock, 3, {7, 8, 7}), 1u) << "it had its further chances";
    clock.Use(1, RowUse::kNow);
    for (int i = 0; i < 6; ++i) {
      EXPECT_NE(Next(&clock, 3, {7, 8, 7}), 1u) << "and gets them again when it is used";
    }
  }
}

TEST(CacheClockTest, AUseThatIsExpectedIsCountedOnce) {
  CacheClock clock = FullClock(CacheStrategy::kLfu, 3);
  clock.Use(0, RowUse::kSoon);
  clock.Use(0, RowUse::kSoon);
  clock.Use(0, RowUse::kNow);
  clock.AddClean(1, 0, RowUse::kSoon);
  EXPECT_EQ(Next(&clock, 3), 2u);  // 0 had one chance, 1 was spared
  EXPECT_EQ(Next(&clock, 3), 0u);
  EXPECT_EQ(Next(&clock, 3), 1u);
  clock.AddClean(1, 0, RowUse::kSoon);
  clock.Use(1, RowUse::kNow);
  EXPECT_EQ(Next(&clock, 3), 2u);
  EXPECT_EQ(Next(&clock, 3), 0u);
  EXPECT_EQ(Next(&clock, 3), 1u);
}

TEST(CacheClockTest, KnowsWhatTheStoreLacks) {
  CacheClock clock = FullClock(CacheStrategy::kLfu, 2);
  EXPECT_FALSE(clock.IsDirty(0));
  clock.Change(0);
  EXPECT_TRUE(clock.IsDirty(0));
  EXPECT_FALSE(clock.IsDirty(1));
  clock.SetClean(0);
  EXPECT_FALSE(clock.IsDirty(0));
  clock.Remove(1);
  clock.Add(1);
  EXPECT_TRUE(clock.IsDirty(1));
}

TEST(CacheClockTest, IsOffUntilItIsTurnedOn) {
  CacheClock clock;
  clock.Reserve(1000);
  clock.Add(3);
  clock.Change(3);
  clock.Remove(3);
  EXPECT_EQ(clock.memory_bytes(), 0);
}

}  // namespace
}  // namespace fused_embedding
