#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "tf_ops/c_api/machine.h"
#include "tf_ops/core/base/threads.h"

namespace fused_embedding {
namespace {

using Clock = std::chrono::steady_clock;

// Threads that share the ranges of one loop at a time. They look out for the next loop before they
// sleep: a lookup has several, and waking a thread takes longer than some of them.
class ThreadPool final : public CpuExec {
 public:
  explicit ThreadPool(int num_threads) : num_threads_(num_threads) {}
  ~ThreadPool() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_closing_ = true;
      ++loop_number_;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  Status Start() {
    threads_.resize(static_cast<size_t>(num_threads_ - 1));
    for (std::thread& thread : threads_) {
      FE_RETURN_IF_ERROR(StartThread("of a pool of CPU threads", [this] { Work(); }, &thread));
    }
    return Status();
  }

  int num_threads() const override { return num_threads_; }

  void ParallelFor(int64_t total, int64_t unit_ns, const Body& body) const override {
    constexpr int64_t kRangeNs = 10'000;  // for less, another thread costs more than it does
    constexpr int64_t kRangesPerThread = 4;
    if (total <= 0) return;
    const int64_t max_ranges = std::min(total, kRangesPerThread * num_threads_);
    const double wanted = static_cast<double>(total) * static_cast<double>(unit_ns) / kRangeNs;
    const int64_t num_ranges =
        wanted < static_cast<double>(max_ranges) ? static_cast<int64_t>(wanted) : max_ranges;
    if (num_threads_ == 1 || num_ranges <= 1) return body(0, total);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      loop_ = {total, num_ranges, &body};
      next_range_ = 0;
      num_working_ = num_threads_ - 1;
      ++loop_number_;
    }
    wake_.notify_all();
    TakeRanges();
    while (num_working_ != 0) std::this_thread::yield();
  }

 private:
  struct Loop {
    int64_t total = 0, num_ranges = 0;
    const Body* body = nullptr;
  };

  void TakeRanges() const {
    const Loop loop = loop_;
    const auto begin_of = [&](int64_t range) {
      const int64_t longer = std::min(range, loop.total % loop.num_ranges);
      return loop.total / loop.num_ranges * range + longer;
    };
    for (int64_t range = next_range_++; range < loop.num_ranges; range = next_range_++) {
      (*loop.body)(begin_of(range), begin_of(range + 1));
    }
  }

  void Work() const {
    for (int64_t seen = 0;;) {
      seen = WaitForLoop(seen);
      if (is_closing_) return;
      TakeRanges();
      --num_working_;
    }
  }

  int64_t WaitForLoop(int64_t seen) const {
    constexpr auto kLookOut = std::chrono::microseconds(200);
    for (const auto end = Clock::now() + kLookOut; Clock::now() < end;) {
      if (const int64_t number = loop_number_; number != seen) return number;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [&] { return loop_number_ != seen; });
    return loop_number_;
  }

  const int num_threads_;
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_;
  mutable Loop loop_;  // changes only while no thread works
  mutable std::atomic<int64_t> loop_number_{0}, next_range_{0};
  mutable std::atomic<int> num_working_{0};
  std::atomic<bool> is_closing_{false};
  std::vector<std::thread> threads_;
};

class CpuMachine final : public FeMachine {
 public:
  explicit CpuMachine(int num_threads) : threads_(num_threads) {}

  Status Start() { return threads_.Start(); }
  const CpuExec* cpu() const override { return &threads_; }

  Status Allocate(int64_t bytes, void** memory) override {
    constexpr size_t kAlignment = 64;
    const bool is_done =
        posix_memalign(memory, kAlignment, static_cast<size_t>(std::max<int64_t>(bytes, 1))) == 0;
    return is_done ? Status() : ResourceExhausted("no memory for ", bytes, " bytes; use less");
  }
  Status Free(void* memory) override {
    std::free(memory);
    return Status();
  }
  Status Copy(void* to, const void* from, int64_t bytes) const override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return Status();
  }
  Status Clear(void* memory, int64_t bytes) override {
    std::memset(memory, 0, static_cast<size_t>(bytes));
    return Status();
  }
  Status Wait() override { return Status(); }
  Status Mark(size_t number) override {
    marks_.resize(std::max(marks_.size(), number + 1));
    marks_[number] = Clock::now();
    return Status();
  }
  Status MicrosBetween(size_t first, size_t last, double* micros) override {
    *micros = std::chrono::duration<double, std::micro>(marks_[last] - marks_[first]).count();
    return Status();
  }

 private:
  ThreadPool threads_;
  std::vector<Clock::time_point> marks_;
};

}  // namespace

Status OpenCpu(int num_threads, std::unique_ptr<FeMachine>* machine) {
  auto opened = std::make_unique<CpuMachine>(num_threads);
  FE_RETURN_IF_ERROR(opened->Start());
  *machine = std::move(opened);
  return Status();
}

}  // namespace fused_embedding
