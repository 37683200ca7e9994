#include "tf_ops/core/table/cache_clock.h"

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

CacheClock FullClock(CacheStrategy strategy, int64_t num_rows) {
  CacheClock clock;
  clock.TurnOn(strategy);
  clock.Reserve(num_rows);
  for (int64_t row = 0; row < num_rows; ++row) clock.AddClean(row);
  return clock;
}

TEST(CacheClockTest, LruSparesARowOnceThatWasUsed) {
  CacheClock clock = FullClock(CacheStrategy::kLru, 4);
  for (int i = 0; i < 5; ++i) clock.Use(0);
  clock.Use(2);
  EXPECT_EQ(clock.Next(4), 1u);
  EXPECT_EQ(clock.Next(4), 3u);
  EXPECT_EQ(clock.Next(4), 0u);
  clock.Use(1);
  EXPECT_EQ(clock.Next(4), 2u);
}

TEST(CacheClockTest, LfuSparesARowAsOftenAsItWasUsed) {
  CacheClock clock = FullClock(CacheStrategy::kLfu, 3);
  for (int i = 0; i < 100; ++i) clock.Use(0);  // counts for 15
  clock.Use(1);
  clock.Use(1);
  EXPECT_EQ(clock.Next(3), 2u);
  clock.Remove(2);
  EXPECT_EQ(clock.Next(3), 1u);
  clock.Remove(1);
  EXPECT_EQ(clock.Next(3), 0u);
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
