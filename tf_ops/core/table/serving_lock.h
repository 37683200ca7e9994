// A reader-writer lock for serving: requests, which read the tables, share it; a delta, which
// changes them, holds it exclusively.
//
// Waits are served in order. Requests that arrive while a delta waits get the lock after the delta,
// so the delta is not starved; all of them get it before the next delta. A wait occupies no thread:
// it ends by a callback.

#ifndef FUSED_EMBEDDING_CORE_TABLE_SERVING_LOCK_H_
#define FUSED_EMBEDDING_CORE_TABLE_SERVING_LOCK_H_

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace fused_embedding {

enum class LockMode { kShared, kAlone };

// One wait for a ServingLock. After it is passed to a lock, only that lock uses its fields.
class LockWait {
 public:
  // `on_end` is called once, with true if the lock is held, or false if the wait was cancelled.
  LockWait(LockMode mode, std::function<void(bool is_held)> on_end)
      : mode_(mode), on_end_(std::move(on_end)) {}

 private:
  friend class ServingLock;
  const LockMode mode_;
  std::function<void(bool)> on_end_;
  bool is_held_ = false;
  bool is_cancelled_ = false;
};

// Any thread may call all methods. `on_end` is called by the thread that acquires, releases or
// cancels, and may call the lock.
class ServingLock {
 public:
  using Wait = std::shared_ptr<LockWait>;

  ServingLock() = default;
  ServingLock(const ServingLock&) = delete;
  ServingLock& operator=(const ServingLock&) = delete;

  void Acquire(const Wait& wait);
  // Cancels a wait, even before it is passed to Acquire. Does nothing if the wait already holds the
  // lock.
  void Cancel(const Wait& wait);
  // Releases a lock that was acquired in this mode.
  void Release(LockMode mode);

  // Torn: a change failed half-way, so the guarded tables must not be used any more. Call both only
  // while holding the lock.
  bool is_torn() const { return is_torn_; }
  void set_torn() { is_torn_ = true; }

 private:
  // Removes the waits that can get the lock from the queue, and marks them as held.
  std::vector<Wait> TakeReady();
  // Calls the callbacks. The mutex must not be held, because a callback may use the lock.
  static void End(const std::vector<Wait>& waits);

  std::mutex mutex_;  // guards the members below
  std::deque<Wait> queue_;
  int num_shared_ = 0;
  bool is_alone_ = false;
  bool is_torn_ = false;  // guarded by this lock, not by mutex_
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_SERVING_LOCK_H_
