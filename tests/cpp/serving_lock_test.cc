#include "tf_ops/core/table/serving_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <string>
#include <thread>

namespace fused_embedding {
namespace {

constexpr LockMode kShared = LockMode::kShared;
constexpr LockMode kAlone = LockMode::kAlone;

// Asks for a lock, and writes `name` to a log once it is held, or `-name` once that was cancelled.
class LockLog {
 public:
  explicit LockLog(ServingLock* lock) : lock_(lock) {}

  ServingLock::Wait Make(const std::string& name, LockMode mode) {
    return std::make_shared<LockWait>(
        mode, [this, name](bool is_held) { ended_ += (is_held ? name : "-" + name) + " "; });
  }
  ServingLock::Wait Ask(const std::string& name, LockMode mode) {
    ServingLock::Wait wait = Make(name, mode);
    lock_->Acquire(wait);
    return wait;
  }
  // Since it was asked last.
  std::string Ended() { return std::exchange(ended_, ""); }

 private:
  ServingLock* const lock_;
  std::string ended_;
};

TEST(ServingLock, IsSharedByRequests) {
  ServingLock lock;
  LockLog log(&lock);
  log.Ask("r1", kShared);
  log.Ask("r2", kShared);
  EXPECT_EQ(log.Ended(), "r1 r2 ");
  log.Ask("d", kAlone);
  lock.Release(kShared);
  EXPECT_EQ(log.Ended(), "");
  lock.Release(kShared);
  EXPECT_EQ(log.Ended(), "d ");
  log.Ask("r3", kShared);
  log.Ask("d2", kAlone);
  EXPECT_EQ(log.Ended(), "");
  lock.Release(kAlone);
  EXPECT_EQ(log.Ended(), "r3 ");
  lock.Release(kShared);
  EXPECT_EQ(log.Ended(), "d2 ");
  lock.Release(kAlone);
  log.Ask("d3", kAlone);
  EXPECT_EQ(log.Ended(), "d3 ");
}

TEST(ServingLock, NobodyIsStarved) {
  ServingLock lock;
  LockLog log(&lock);
  log.Ask("r1", kShared);
  log.Ask("d1", kAlone);
  log.Ask("r2", kShared);  // after the delta that waits
  log.Ask("r3", kShared);
  log.Ask("d2", kAlone);
  log.Ask("r4", kShared);
  EXPECT_EQ(log.Ended(), "r1 ");
  lock.Release(kShared);
  EXPECT_EQ(log.Ended(), "d1 ");
  lock.Release(kAlone);
  EXPECT_EQ(log.Ended(), "r2 r3 ");  // before the next delta
  lock.Release(kShared);
  EXPECT_EQ(log.Ended(), "");
  lock.Release(kShared);
  EXPECT_EQ(log.Ended(), "d2 ");
  lock.Release(kAlone);
  EXPECT_EQ(log.Ended(), "r4 ");
}

TEST(ServingLock, AWaitThatIsCancelledHoldsNobodyUp) {
  ServingLock lock;
  LockLog log(&lock);
  const ServingLock::Wait held = log.Ask("r1", kShared);
  const ServingLock::Wait delta = log.Ask("d1", kAlone);
  log.Ask("r2", kShared);
  const ServingLock::Wait last = log.Ask("d2", kAlone);
  EXPECT_EQ(log.Ended(), "r1 ");
  lock.Cancel(delta);
  EXPECT_EQ(log.Ended(), "r2 -d1 ");
  lock.Cancel(delta);  // twice is once
  lock.Cancel(held);   // too late: it has to be released
  lock.Cancel(last);
  EXPECT_EQ(log.Ended(), "-d2 ");
  lock.Release(kShared);
  log.Ask("d3", kAlone);
  EXPECT_EQ(log.Ended(), "");
  lock.Release(kShared);
  EXPECT_EQ(log.Ended(), "d3 ");
}

TEST(ServingLock, AWaitMayBeCancelledBeforeItBegins) {
  ServingLock lock;
  LockLog log(&lock);
  const ServingLock::Wait wait = log.Make("d", kAlone);
  lock.Cancel(wait);
  EXPECT_EQ(log.Ended(), "");
  lock.Acquire(wait);
  EXPECT_EQ(log.Ended(), "-d ");
  log.Ask("d2", kAlone);
  EXPECT_EQ(log.Ended(), "d2 ");
}

TEST(ServingLock, WhoIsCalledMayCallTheLock) {
  ServingLock lock;
  int num_held = 0;
  std::function<void(bool)> again = [&](bool is_held) {
    ASSERT_TRUE(is_held);
    if (++num_held < 5) {
      lock.Acquire(std::make_shared<LockWait>(kAlone, again));
      lock.Release(kAlone);
    }
  };
  lock.Acquire(std::make_shared<LockWait>(kAlone, again));
  EXPECT_EQ(num_held, 5);
}

TEST(ServingLock, AWaitIsForgottenOnceItHasEnded) {
  ServingLock lock;
  const auto owned = std::make_shared<int>(7);
  lock.Acquire(std::make_shared<LockWait>(kAlone, [owned](bool) {}));
  const auto cancelled = std::make_shared<LockWait>(kShared, [owned](bool) {});
  lock.Acquire(cancelled);
  EXPECT_EQ(owned.use_count(), 2);
  lock.Cancel(cancelled);
  EXPECT_EQ(owned.use_count(), 1);
}

// Acquires as a thread does that may wait.
bool AcquireAndWait(ServingLock* lock, LockMode mode, bool do_cancel) {
  std::mutex mutex;
  std::condition_variable ended;
  int outcome = -1;
  const auto wait = std::make_shared<LockWait>(mode, [&](bool is_held) {
    const std::lock_guard<std::mutex> guard(mutex);
    outcome = is_held;
    ended.notify_one();
  });
  std::thread canceller;
  if (do_cancel) canceller = std::thread([&] { lock->Cancel(wait); });
  lock->Acquire(wait);
  if (do_cancel) canceller.join();
  std::unique_lock<std::mutex> guard(mutex);
  ended.wait(guard, [&] { return outcome >= 0; });
  return outcome == 1;
}

TEST(ServingLock, ThreadsReadOneState) {
  constexpr int kNumThreads = 4;
  constexpr int64_t kRounds = 400;
  ServingLock lock;
  int64_t first = 0, second = 0;  // equal for those who hold the lock
  std::atomic<int64_t> num_torn{0}, num_changes{0};
  const auto work = [&](int number) {
    for (int64_t i = 0; i < kRounds; ++i) {
      const LockMode mode = (i + number) % 8 == 0 ? kAlone : kShared;
      if (!AcquireAndWait(&lock, mode, i % 16 == number)) continue;
      num_torn += first != second;
      if (mode == kAlone) {
        ++first;
        std::this_thread::yield();
        ++second;
        ++num_changes;
      }
      lock.Release(mode);
    }
  };
  std::thread threads[kNumThreads];
  for (int i = 0; i < kNumThreads; ++i) threads[i] = std::thread(work, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_torn, 0);
  EXPECT_EQ(first, num_changes);
  EXPECT_GT(num_changes, kRounds / 4);
}

TEST(ServingLock, IsTornForAllOnceAChangeFailed) {
  ServingLock lock;
  EXPECT_FALSE(lock.is_torn());
  LockLog log(&lock);
  log.Ask("d", kAlone);
  lock.set_torn();
  lock.Release(kAlone);
  log.Ask("r", kShared);
  EXPECT_TRUE(lock.is_torn());
}

}  // namespace
}  // namespace fused_embedding
