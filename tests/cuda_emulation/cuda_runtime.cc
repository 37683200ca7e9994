// Threads of a block are fibers on one thread of the system: each runs until it has to wait for
// others, and blocks run one after the other.

#include <cuda_runtime.h>
#include <ucontext.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace cuda_emulation {
namespace {

constexpr size_t kStackBytes = 64 * 1024;
constexpr int kWarp = 32;

[[noreturn]] void Die(const char* why) {
  std::fprintf(stderr, "CUDA emulation: %s (block %u, thread %u)\n", why, blockIdx.x, threadIdx.x);
  std::abort();
}

std::mt19937_64 random_bits;
bool is_shuffled = false;

std::vector<unsigned> Order(unsigned size) {
  std::vector<unsigned> order(size);
  std::iota(order.begin(), order.end(), 0u);
  if (is_shuffled) std::shuffle(order.begin(), order.end(), random_bits);
  return order;
}

struct Turns {
  unsigned lanes = 0;
  std::vector<int64_t> switches;  // ascending
  int64_t max_rounds = 0;
};
Turns turns;

enum class State { kRuns, kWaitsForBlock, kWaitsForWarp, kEnded };

struct Stack {
  const void* memory = nullptr;
  size_t bytes = 0;
};

// What runs on a stack of its own. It is entered by setcontext, which calls the system; from then
// on switches are jumps.
struct Context {
  ucontext_t first;
  void* jump[5];
  bool has_run = false;
  Stack stack;
};

// The compiler's jump, not the C library's. AddressSanitizer intercepts longjmp and clears its
// marks of the stack, also around arrays of threads that continue. That took two thirds of the
// tests' time.
[[noreturn, gnu::noinline, gnu::no_sanitize("address")]] void Jump(Context* to) {
  __builtin_longjmp(to->jump, 1);
}

[[gnu::noinline, gnu::no_sanitize("address")]] void SwitchTo(Context* from, Context* to) {
#ifdef __SANITIZE_ADDRESS__
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, to->stack.memory, to->stack.bytes);
#endif
  from->has_run = true;
  if (__builtin_setjmp(from->jump) == 0) {
    if (to->has_run) Jump(to);
    setcontext(&to->first);
  }
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

// Runs one thread after the other.
struct Fiber {
  explicit Fiber(void (*main)()) {
    context.stack = {memory.get(), kStackBytes};
    getcontext(&context.first);
    context.first.uc_stack.ss_sp = memory.get();
    context.first.uc_stack.ss_size = kStackBytes;
    context.first.uc_link = nullptr;
    makecontext(&context.first, main, 0);
  }

  std::unique_ptr<char[]> memory = std::make_unique<char[]>(kStackBytes);
  Context context;
  State state = State::kEnded;
  uint32_t mask = 0;    // kWaitsForWarp: the lanes that it waits for
  uint64_t passed = 0;  // to the other lanes
};

class Block {
 public:
  void Run(unsigned num_threads, const std::function<void()>& thread) {
    while (fibers_.size() < num_threads) fibers_.push_back(std::make_unique<Fiber>(&Block::Main));
    num_threads_ = num_threads;
    thread_ = &thread;
    for (unsigned i = 0; i < num_threads; ++i) fibers_[i]->state = State::kRuns;
    num_ended_ = 0;
    if (turns.lanes > 0) RunInTurns();
    const std::vector<unsigned> order = Order(num_threads);
    while (num_ended_ < num_threads) {
      if (!RunRound(order)) Die("not all threads come to a barrier");
    }
  }

  Fiber& current() { return *fibers_[threadIdx.x]; }
  Fiber& lane(int lane) {
    return *fibers_[threadIdx.x / kWarp * kWarp + static_cast<unsigned>(lane)];
  }

  // Returns when this thread is resumed.
  void Yield(State state) {
    Fiber& fiber = current();
    fiber.state = state;
    SwitchTo(&fiber.context, &scheduler_);
  }

  // The last threads are checked first: unshuffled, they run last, so the first check mostly
  // decides.
  void WaitForBlock() {
    for (unsigned i = num_threads_; i-- > 0;) {
      if (i != threadIdx.x && fibers_[i]->state != State::kWaitsForBlock) {
        return Yield(State::kWaitsForBlock);
      }
    }
    for (unsigned i = 0; i < num_threads_; ++i) fibers_[i]->state = State::kRuns;
  }

  void WaitForWarp(uint32_t mask) {
    if (!(mask >> Lane() & 1)) Die("a lane is not in the mask that it passes");
    const int last_lane = kWarp - 1 - __builtin_clz(mask);
    if (threadIdx.x / kWarp * kWarp + static_cast<unsigned>(last_lane) >= num_threads_) {
      Die("the mask has lanes that the block has not");
    }
    current().mask = mask;
    for (int i = last_lane; i >= 0; --i) {  // the last first, as in WaitForBlock
      if (!(mask >> i & 1) || i == Lane()) continue;
      if (lane(i).state != State::kWaitsForWarp || lane(i).mask != mask) {
        return Yield(State::kWaitsForWarp);
      }
    }
    for (int i = 0; i < kWarp; ++i) {
      if (mask >> i & 1) lane(i).state = State::kRuns;
    }
  }

 private:
  // Resumes each of these threads once. Returns whether any of them could run.
  bool RunRound(const std::vector<unsigned>& threads) {
    bool has_run = false;
    for (const unsigned i : threads) {
      if (i >= num_threads_ || fibers_[i]->state != State::kRuns) continue;
      has_run = true;
      Resume(i);
      num_ended_ += fibers_[i]->state == State::kEnded;
    }
    return has_run;
  }

  // Ends when neither group can run.
  void RunInTurns() {
    std::vector<unsigned> groups[2];
    for (unsigned i = 0; i < 2 * turns.lanes; ++i) groups[i / turns.lanes].push_back(i);
    int group = 0;
    int64_t num_rounds = 0;
    auto next_switch = turns.switches.begin();
    while (RunRound(groups[group]) || RunRound(groups[1 - group])) {
      ++num_rounds;
      if (next_switch == turns.switches.end() || *next_switch != num_rounds) continue;
      group = 1 - group;
      ++next_switch;
    }
    turns.max_rounds = std::max(turns.max_rounds, num_rounds);
  }

  void Resume(unsigned thread) {
    threadIdx = {thread, 0, 0};
    SwitchTo(&scheduler_, &fibers_[thread]->context);
  }

  static void Main();

  std::vector<std::unique_ptr<Fiber>> fibers_;
  unsigned num_threads_ = 0, num_ended_ = 0;
  const std::function<void()>* thread_ = nullptr;
  Context scheduler_;
};

Block block;

void Block::Main() {
#ifdef __SANITIZE_ADDRESS__
  Stack* scheduler_stack = &block.scheduler_.stack;
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack->memory, &scheduler_stack->bytes);
#endif
  for (;;) {
    (*block.thread_)();
    block.Yield(State::kEnded);
  }
}

std::deque<std::function<void()>> stream;
cudaError_t next_failure = cudaSuccess;
int64_t num_waits = 0, num_launches = 0;
bool ends_with_copy_to_host = false;  // the stream

}  // namespace

void Enqueue(std::function<void()> work) {
  stream.push_back(std::move(work));
  ends_with_copy_to_host = false;
}

void ShuffleOrder(uint64_t seed) {
  is_shuffled = seed != 0;
  random_bits.seed(seed);
}

void TakeTurns(unsigned lanes, std::vector<int64_t> switches) {
  turns = {lanes, std::move(switches), 0};
}
int64_t MaxRounds() { return turns.max_rounds; }

int64_t NumWaits() { return num_waits; }
int64_t NumLaunches() { return num_launches; }
void FailNextCall(cudaError_t error) { next_failure = error; }
cudaError_t TakeFailure() { return std::exchange(next_failure, cudaSuccess); }

void RunGrid(dim3 num_blocks, dim3 num_threads, const std::function<void()>& thread) {
  ++num_launches;
  gridDim = num_blocks;
  blockDim = num_threads;
  if (num_blocks.x == 0 || num_threads.x == 0 || num_threads.x > 1024) Die("impossible grid");
  for (const unsigned i : Order(num_blocks.x)) {
    blockIdx = {i, 0, 0};
    block.Run(num_threads.x, thread);
  }
}

int Lane() { return static_cast<int>(threadIdx.x % kWarp); }

void MayYield() {
  if (is_shuffled && random_bits() % 4 == 0) block.Yield(State::kRuns);
}

uint64_t Shuffle(uint32_t mask, uint64_t bits, int source) {
  block.current().passed = bits;
  block.WaitForWarp(mask);
  if (source < 0 || source >= kWarp || !(mask >> source & 1)) Die("reads a lane not in the mask");
  bits = block.lane(source).passed;
  block.WaitForWarp(mask);  // before the next value is passed
  return bits;
}

uint32_t Ballot(uint32_t mask, bool predicate) {
  block.current().passed = predicate;
  block.WaitForWarp(mask);
  uint32_t ballot = 0;
  for (int i = 0; i < kWarp; ++i) {
    if (mask >> i & 1) ballot |= static_cast<uint32_t>(block.lane(i).passed) << i;
  }
  block.WaitForWarp(mask);
  return ballot;
}

}  // namespace cuda_emulation

using cuda_emulation::Enqueue;

void __syncthreads() { cuda_emulation::block.WaitForBlock(); }

// Of exactly this size, so that AddressSanitizer sees every access past its end.
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t error = cuda_emulation::TakeFailure(); error != cudaSuccess) return error;
  constexpr size_t kAlignment = 256;
  return posix_memalign(memory, kAlignment, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void* memory) {
  cudaStreamSynchronize(nullptr);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) {
  return cudaMalloc(memory, bytes);
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  Enqueue([=] { std::free(memory); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  if (const cudaError_t error = cuda_emulation::TakeFailure(); error != cudaSuccess) return error;
  if (kind != cudaMemcpyHostToDevice) {
    Enqueue([=] { std::memcpy(to, from, bytes); });
    if (kind == cudaMemcpyDeviceToHost) {
      ++cuda_emulation::num_waits;
      cuda_emulation::ends_with_copy_to_host = true;
    }
    return cudaSuccess;
  }
  // Host memory may change as soon as the call returns.
  std::vector<char> staged(bytes);
  if (bytes > 0) std::memcpy(staged.data(), from, bytes);
  Enqueue([to, staged] { std::copy(staged.begin(), staged.end(), static_cast<char*>(to)); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int byte, size_t bytes, cudaStream_t) {
  if (const cudaError_t error = cuda_emulation::TakeFailure(); error != cudaSuccess) return error;
  Enqueue([=] { std::memset(memory, byte, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  using cuda_emulation::stream;
  if (!std::exchange(cuda_emulation::ends_with_copy_to_host, false)) ++cuda_emulation::num_waits;
  for (; !stream.empty(); stream.pop_front()) stream.front()();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 2;  // multiprocessors
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* created, unsigned) {
  *created = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }

struct CUevent_st {
  std::chrono::steady_clock::time_point time;
};

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = std::make_unique<CUevent_st>().release();
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  Enqueue([=] { event->time = std::chrono::steady_clock::now(); });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* millis, cudaEvent_t first, cudaEvent_t last) {
  *millis = std::chrono::duration<float, std::milli>(last->time - first->time).count();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::unique_ptr<CUevent_st>{event}.reset();
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorEmulated";
}
const char* cudaGetErrorString(cudaError_t) { return "an error of the emulation"; }
