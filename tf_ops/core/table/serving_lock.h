// The lock between requests, which read tables together, and a delta, which changes them alone.
//
// First come, first served: requests that come while a delta waits are held after it, so that it
// is not starved, and they are all held before the next delta. Waiting takes no thread: whoever
// waits is called back.

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

// One wait for a ServingLock. Its fields are the lock's once it is given to one.
class LockWait {
 public:
  // `on_end` is called once: whether the lock is held, or the wait was cancelled.
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
  // Ends a wait, also one that is still to be given to Acquire; nothing for a lock that is held.
  void Cancel(const Wait& wait);
  // What was acquired in this mode.
  void Release(LockMode mode);

  // What the lock guards is of no use any more: a change failed half-way. Read and written by
  // those who hold it.
  bool is_torn() const { return is_torn_; }
  void set_torn() { is_torn_ = true; }

 private:
  // Takes out of the queue, and marks as held, those who may go on.
  std::vector<Wait> TakeReady();
  // Without the mutex: what is called may use the lock.
  static void End(const std::vector<Wait>& waits);

  std::mutex mutex_;  // of what follows
  std::deque<Wait> queue_;
  int num_shared_ = 0;
  bool is_alone_ = false;
  bool is_torn_ = false;  // guarded by the lock itself
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_SERVING_LOCK_H_
