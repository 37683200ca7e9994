#include "tf_ops/core/table/cache_clock.h"

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

TEST(CacheClockTest, LruSparesARowOnceThatWasUsed) {
  CacheClock clock = FullClock(CacheStrategy::kLru, 4);
  for (int i = 0; i < 5; ++i) clock.Use(0, RowUse::kNow);
  clock.Use(2, RowUse::kNow);
  EXPECT_EQ(clock.Next(4), 1u);
  EXPECT_EQ(clock.Next(4), 3u);
  EXPECT_EQ(clock.Next(4), 0u);
  clock.Use(1, RowUse::kNow);
  EXPECT_EQ(clock.Next(4), 2u);
}

TEST(CacheClockTest, LfuSparesARowAsOftenAsItWasUsed) {
  CacheClock clock = FullClock(CacheStrategy::kLfu, 3);
  for (int i = 0; i < 100; ++i) clock.Use(0, RowUse::kNow);  // counts for 15
  clock.Use(1, RowUse::kNow);
  clock.Use(1, RowUse::kNow);
  EXPECT_EQ(clock.Next(3), 2u);
  clock.Remove(2);
  EXPECT_EQ(clock.Next(3), 1u);
  clock.Remove(1);
  EXPECT_EQ(clock.Next(3), 0u);
}

TEST(CacheClockTest, LfuSparesRowsThatComeBackMoreFrequentThanThoseThatLeave) {
  for (const CacheStrategy strategy : {CacheStrategy::kLfu, CacheStrategy::kLru}) {
    CacheClock clock = FullClock(strategy, 3);
    for (int i = 0; i < 20000; ++i) clock.CountLeaving(5);  // three bits
    clock.AddClean(0, 7, RowUse::kNone);
    clock.AddClean(1, 32, RowUse::kNone);
    EXPECT_EQ(clock.Next(3), 0u);
    EXPECT_EQ(clock.Next(3), strategy == CacheStrategy::kLfu ? 2u : 1u);
  }
}

TEST(CacheClockTest, AUseThatIsExpectedIsCountedOnce) {
  CacheClock clock = FullClock(CacheStrategy::kLfu, 3);
  clock.Use(0, RowUse::kSoon);
  clock.Use(0, RowUse::kSoon);
  clock.Use(0, RowUse::kNow);
  clock.AddClean(1, 0, RowUse::kSoon);
  EXPECT_EQ(clock.Next(3), 2u);  // 0 had one chance, 1 was spared
  EXPECT_EQ(clock.Next(3), 0u);
  EXPECT_EQ(clock.Next(3), 1u);
  clock.AddClean(1, 0, RowUse::kSoon);
  clock.Use(1, RowUse::kNow);
  EXPECT_EQ(clock.Next(3), 2u);
  EXPECT_EQ(clock.Next(3), 0u);
  EXPECT_EQ(clock.Next(3), 1u);
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
