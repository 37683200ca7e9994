#include "tf_ops/core/base/huge_pages.h"

#include <cstdlib>
#include <string>
#include <thread>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/page_memory.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/base/threads.h"

namespace fused_embedding {
namespace {

bool IsTurnedOff() {
  const char* const disabled = std::getenv("FE_DISABLE");
  return disabled != nullptr && std::string(disabled).find("huge_pages") != std::string::npos;
}

}  // namespace

HugePages& HugePages::Global() {
  // The thread may still run when the process ends.
  static HugePages* const pages = new HugePages(!IsTurnedOff());
  return *pages;
}

void HugePages::Use(const void* data, int64_t bytes) {
  if (!is_on_ || bytes < kMinBytes) return;
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (!IsNew(Mix64(address ^ Mix64(static_cast<uint64_t>(bytes))))) return;
  char* const begin = reinterpret_cast<char*>(address);
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_.push_back({begin, begin + bytes});
  if (is_moving_) return;
  std::thread thread;
  const Status started = StartThread("to move pages", [this] { MoveAll(); }, &thread);
  is_moving_ = started.ok();  // else the next buffer tries again
  if (is_moving_) thread.detach();
}

void HugePages::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  is_idle_.wait(lock, [this] { return !is_moving_; });
}

void HugePages::MoveAll() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!pending_.empty()) {
    const Memory memory = pending_.front();
    pending_.pop_front();
    lock.unlock();
    const int64_t moved = MoveToHugePages(memory.begin, memory.end);
    moved_bytes_ += moved;
    refused_bytes_ += memory.end - memory.begin - moved;
    lock.lock();
  }
  is_moving_ = false;
  is_idle_.notify_all();  // under the lock: Wait may be the destructor's
}

bool HugePages::IsNew(uint64_t buffer) {
  const auto slot = [&](int probe) -> std::atomic<uint64_t>& {
    return known_[(buffer + static_cast<uint64_t>(probe)) % kNumSlots];
  };
  for (int probe = 0; probe < kMaxProbes; ++probe) {
    uint64_t found = slot(probe).load(std::memory_order_relaxed);
    if (found == buffer) return false;
    if (found != 0) continue;
    if (slot(probe).compare_exchange_strong(found, buffer, std::memory_order_relaxed)) return true;
    if (found == buffer) return false;
  }
  // Takes the place of one, mostly of a variable that was freed.
  return slot(0).exchange(buffer, std::memory_order_relaxed) != buffer;
}

}  // namespace fused_embedding
