#ifndef FUSED_EMBEDDING_CORE_BASE_HUGE_PAGES_H_
#define FUSED_EMBEDDING_CORE_BASE_HUGE_PAGES_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

namespace fused_embedding {

// Moves memory that TensorFlow allocated, the values of variables, onto huge pages, once for each
// buffer. A row on a page of 4 KB costs a miss of the page table as well as one of the cache.
//
// A background thread does it, a millisecond or more for each page of 2 MB, while steps read and
// write the values. The owner may free them meanwhile: to the system this is advice about
// addresses, whatever is there.
//
// Thread-safe.
class HugePages {
 public:
  // Buffers with fewer bytes stay as they are. From so many on, TensorFlow's allocator puts buffers
  // side by side into large regions, so that small tables fill huge pages together.
  static constexpr int64_t kMinBytes = int64_t{256} << 10;

  // Off, if FE_DISABLE in the environment names "huge_pages". Never destroyed.
  static HugePages& Global();

  explicit HugePages(bool is_on) : is_on_(is_on) {}
  ~HugePages() { Wait(); }

  // Moves a new buffer in the background. A call for a known one costs some nanoseconds. Where the
  // system refuses, the values stay on their pages.
  void Use(const void* data, int64_t bytes);

  // Returns when all buffers so far were moved.
  void Wait();

  // So far. Refused are bytes that the system has not moved at once; its own thread may do so
  // later.
  int64_t moved_bytes() const { return moved_bytes_; }
  int64_t refused_bytes() const { return refused_bytes_; }

 private:
  struct Memory {
    char* begin;
    char* end;
  };

  static constexpr int kNumSlots = 1 << 13;
  static constexpr int kMaxProbes = 8;

  bool IsNew(uint64_t buffer);
  void MoveAll();

  const bool is_on_;
  // Buffers by a hash of address and size. No data is read through it, so that its accesses are
  // relaxed. Freed buffers stay in it: a new one of the same address and size is not moved.
  std::array<std::atomic<uint64_t>, kNumSlots> known_{};
  std::atomic<int64_t> moved_bytes_{0};
  std::atomic<int64_t> refused_bytes_{0};

  std::mutex mutex_;
  std::condition_variable is_idle_;
  std::deque<Memory> pending_;  // guarded by mutex_
  bool is_moving_ = false;      // guarded by mutex_; there is a thread, which ends with `pending_`
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_HUGE_PAGES_H_
