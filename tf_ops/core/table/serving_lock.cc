#include "tf_ops/core/table/serving_lock.h"

#include <algorithm>

namespace fused_embedding {

void ServingLock::Acquire(const Wait& wait) {
  std::vector<Wait> ended;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (wait->is_cancelled_) {
      ended.push_back(wait);
    } else {
      queue_.push_back(wait);
      ended = TakeReady();
    }
  }
  End(ended);
}

void ServingLock::Cancel(const Wait& wait) {
  std::vector<Wait> ended;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    wait->is_cancelled_ = true;
    const auto place = std::find(queue_.begin(), queue_.end(), wait);
    if (place == queue_.end()) return;
    queue_.erase(place);
    ended = TakeReady();  // requests that were held up by a delta
    ended.push_back(wait);
  }
  End(ended);
}

void ServingLock::Release(LockMode mode) {
  std::vector<Wait> ended;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (mode == LockMode::kAlone) {
      is_alone_ = false;
    } else {
      --num_shared_;
    }
    ended = TakeReady();
  }
  End(ended);
}

std::vector<ServingLock::Wait> ServingLock::TakeReady() {
  std::vector<Wait> ready;
  while (!queue_.empty() && !is_alone_) {
    const Wait& first = queue_.front();
    const bool is_alone = first->mode_ == LockMode::kAlone;
    if (is_alone && num_shared_ > 0) break;
    is_alone_ = is_alone;
    num_shared_ += !is_alone;
    first->is_held_ = true;
    ready.push_back(first);
    queue_.pop_front();
  }
  return ready;
}

void ServingLock::End(const std::vector<Wait>& waits) {
  for (const Wait& wait : waits) {
    // What it owns may be what owns the wait.
    const auto on_end = std::move(wait->on_end_);
    on_end(wait->is_held_);
  }
}

}  // namespace fused_embedding
