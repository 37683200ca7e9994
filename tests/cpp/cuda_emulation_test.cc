// What the emulation of CUDA must show. A GPU has nothing to do with it.

#include "tests/cpp/cuda_testing.h"

#ifdef FE_CUDA_EMULATION

#include "tf_ops/core/base/cuda/launch.cu.h"

// Defined where the address sanitizer is linked in.
extern "C" __attribute__((weak)) void __asan_poison_memory_region(const volatile void*, size_t);
extern "C" __attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
extern "C" __attribute__((weak)) int __asan_address_is_poisoned(const volatile void*);

namespace fused_embedding {
namespace {

using CudaEmulation = GpuTest;

__global__ void ReverseKernel(const int32_t* in, int32_t* out) {
  __shared__ int32_t values[kBlockSize];
  const int64_t first = int64_t{blockIdx.x} * blockDim.x;
  values[threadIdx.x] = in[first + threadIdx.x];
  __syncthreads();
  out[first + threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

TEST_F(CudaEmulation, ABarrierIsReachedByAllThreadsOfABlock) {
  Array<int32_t> in(3 * kBlockSize);
  for (int64_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i);
  const DeviceArray<int32_t> device_in(in), out(in.size());
  for (const uint64_t seed : OrderSeeds()) {
    ShuffleOrder(seed);
    ASSERT_TRUE(IsOk(LaunchBlocks(gpu, 3, ReverseKernel, device_in.data(), out.data())));
    const Array<int32_t> got = out.ToHost();
    for (int64_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], i / kBlockSize * kBlockSize + kBlockSize - 1 - i % kBlockSize);
    }
  }
}

// Sums within sub-warps of 8, whose lanes are at other places at any time.
__global__ void WarpKernel(int32_t* sums, uint32_t* ballots, int32_t* firsts) {
  const int lane = static_cast<int>(threadIdx.x) % warpSize;
  const uint32_t mask = 0xffu << (lane / 8 * 8);
  int32_t sum = lane;
  for (int other = 4; other > 0; other /= 2) sum += __shfl_xor_sync(mask, sum, other);
  sums[threadIdx.x] = sum;
  __syncwarp();
  ballots[threadIdx.x] = __ballot_sync(~0u, lane % 3 == 0);
  firsts[threadIdx.x] = __shfl_sync(mask, lane, lane / 8 * 8);
}

TEST_F(CudaEmulation, LanesOfAWarpExchangeValues) {
  const DeviceArray<int32_t> sums(kBlockSize), firsts(kBlockSize);
  const DeviceArray<uint32_t> ballots(kBlockSize);
  for (const uint64_t seed : OrderSeeds()) {
    ShuffleOrder(seed);
    ASSERT_TRUE(IsOk(LaunchBlocks(gpu, 1, WarpKernel, sums.data(), ballots.data(), firsts.data())));
    const Array<int32_t> got = sums.ToHost(), got_firsts = firsts.ToHost();
    const Array<uint32_t> got_ballots = ballots.ToHost();
    for (int64_t i = 0; i < kBlockSize; ++i) {
      const int32_t first = static_cast<int32_t>(i % 32 / 8 * 8);
      ASSERT_EQ(got[i], 8 * first + 28);
      ASSERT_EQ(got_firsts[i], first);
      ASSERT_EQ(got_ballots[i], 0x49249249u);
    }
  }
}

__global__ void LastWriterKernel(int32_t* last) { *last = static_cast<int32_t>(threadIdx.x); }

TEST_F(CudaEmulation, ResultsThatDependOnTheOrderOfThreadsShow) {
  const DeviceArray<int32_t> last(1);
  std::set<int32_t> seen;
  for (uint64_t seed = 1; seed < 9; ++seed) {
    ShuffleOrder(seed);
    ASSERT_TRUE(IsOk(LaunchBlocks(gpu, 1, LastWriterKernel, last.data())));
    seen.insert(last.ToHost()[0]);
  }
  EXPECT_GT(seen.size(), 2u);
}

// Reads and adds in two steps, as an atomic does not.
__global__ void RacyCountKernel(int32_t* count, uint32_t* atomic_count) {
  const int32_t seen = *count;
  atomicAdd(atomic_count, 1u);
  *count = seen + 1;
}

TEST_F(CudaEmulation, RacesWithinABlockShow) {
  const DeviceArray<int32_t> count(1);
  const DeviceArray<uint32_t> atomic_count(1);
  ShuffleOrder(1);
  ASSERT_TRUE(IsOk(Fill(gpu, 0, count.span())));
  ASSERT_TRUE(IsOk(Fill(gpu, 0, atomic_count.span())));
  ASSERT_TRUE(IsOk(LaunchBlocks(gpu, 1, RacyCountKernel, count.data(), atomic_count.data())));
  EXPECT_LT(count.ToHost()[0], kBlockSize);
  EXPECT_EQ(atomic_count.ToHost()[0], static_cast<uint32_t>(kBlockSize));
}

// Marks bytes of its stack, as the sanitizer marks those around an array, waits for the other
// threads, and counts itself if the mark is still there.
__global__ void MarkedStackKernel(int32_t* num_marked) {
  alignas(8) char around_an_array[32];
  __asan_poison_memory_region(around_an_array, sizeof(around_an_array));
  __syncthreads();
  *num_marked += __asan_address_is_poisoned(around_an_array);
  __asan_unpoison_memory_region(around_an_array, sizeof(around_an_array));
}

TEST_F(CudaEmulation, AccessesOutsideArraysOfAThreadShowAfterItHasWaited) {
  if (!IsAddressSanitized()) GTEST_SKIP() << "only the address sanitizer marks memory";
  const DeviceArray<int32_t> num_marked(1);
  ASSERT_TRUE(IsOk(Fill(gpu, 0, num_marked.span())));
  ASSERT_TRUE(IsOk(LaunchBlocks(gpu, 2, MarkedStackKernel, num_marked.data())));
  EXPECT_EQ(num_marked.ToHost()[0], 2 * kBlockSize);
}

TEST_F(CudaEmulation, NothingRunsBeforeTheWait) {
  const DeviceArray<int32_t> last(1);
  int32_t read_too_early = -7;
  ASSERT_TRUE(IsOk(LaunchBlocks(gpu, 1, LastWriterKernel, last.data())));
  ASSERT_TRUE(IsOk(CopyToHost<int32_t>(gpu, last.data(), {&read_too_early, 1})));
  EXPECT_EQ(read_too_early, -7);
  ASSERT_TRUE(IsOk(WaitForStream(gpu)));
  EXPECT_EQ(read_too_early, kBlockSize - 1);
}

TEST_F(CudaEmulation, ACopyToTheHostIsAWait) {
  const DeviceArray<int32_t> first(1), second(1);
  int32_t values[2];
  const auto num_waits = [num_before = NumWaits()] { return NumWaits() - num_before; };
  ASSERT_TRUE(IsOk(CopyToHost<int32_t>(gpu, first.data(), {&values[0], 1})));
  ASSERT_TRUE(IsOk(WaitForStream(gpu)));  // is over already
  EXPECT_EQ(num_waits(), 1);
  ASSERT_TRUE(IsOk(CopyToHost<int32_t>(gpu, first.data(), {&values[0], 1})));
  ASSERT_TRUE(IsOk(CopyToHost<int32_t>(gpu, second.data(), {&values[1], 1})));
  ASSERT_TRUE(IsOk(WaitForStream(gpu)));
  EXPECT_EQ(num_waits(), 3);
  ASSERT_TRUE(IsOk(CopyToHost<int32_t>(gpu, first.data(), {&values[0], 1})));
  ASSERT_TRUE(IsOk(LaunchBlocks(gpu, 1, LastWriterKernel, first.data())));
  ASSERT_TRUE(IsOk(WaitForStream(gpu)));
  EXPECT_EQ(num_waits(), 5);
}

TEST_F(CudaEmulation, WhatIsReadBackTogetherIsOneWait) {
  const DeviceArray<int64_t> numbers(Array<int64_t>{5, 6, 7});
  const DeviceArray<char> letter(Array<char>{'x'});
  int64_t last = 0, first_two[2] = {0, 0};
  char read_letter = '-';
  Readback readback;
  readback.Add<char>(letter.data(), {&read_letter, 1});
  readback.Add<int64_t>(numbers.data() + 2, {&last, 1});
  readback.Add<int64_t>(numbers.data(), {first_two, 0});
  readback.Add<int64_t>(numbers.data(), {first_two, 2});
  const int64_t num_waits = NumWaits();
  ASSERT_TRUE(IsOk(readback.Wait(gpu)));
  EXPECT_EQ(NumWaits() - num_waits, 1);
  EXPECT_EQ(read_letter, 'x');
  EXPECT_EQ(last, 7);
  EXPECT_EQ(first_two[0], 5);
  EXPECT_EQ(first_two[1], 6);
}

__global__ void HalfOfABlockWaitsKernel() {
  if (threadIdx.x < 64) __syncthreads();
}

__global__ void HalfOfAWarpShufflesKernel() {
  if (threadIdx.x % warpSize < 16) __shfl_xor_sync(~0u, 1, 1);
}

TEST_F(CudaEmulation, BarriersThatNotAllReachEndTheProgram) {
  const auto run = [&](void (*kernel)()) {
    (void)LaunchBlocks(gpu, 1, kernel);
    (void)WaitForStream(gpu);
  };
  EXPECT_DEATH(run(HalfOfABlockWaitsKernel), "not all threads come to a barrier");
  EXPECT_DEATH(run(HalfOfAWarpShufflesKernel), "not all threads come to a barrier");
}

}  // namespace
}  // namespace fused_embedding

#endif  // FE_CUDA_EMULATION
