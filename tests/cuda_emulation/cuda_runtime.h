// The part of the CUDA runtime that tf_ops/core uses, on the processor: with this folder before
// CUDA's own on the include path, g++ compiles the .cu.cc files as they are.
//
// What it shows: wrong results, dependence on the order of threads and blocks (both are shuffled by
// a seed), accesses out of bounds (with AddressSanitizer), barriers that not all threads reach,
// results that are read before the stream was waited for. What it cannot show: the memory model,
// races between blocks, real warps, speed. docs/decisions/024 has more.

#ifndef FUSED_EMBEDDING_TESTS_CUDA_EMULATION_CUDA_RUNTIME_H_
#define FUSED_EMBEDDING_TESTS_CUDA_EMULATION_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define FE_CUDA_EMULATION 1

#define __global__
#define __host__
#define __device__
#define __launch_bounds__(...)
// Blocks run one after the other.
#define __shared__ static

// As CUDA's, these may be read where other types were written.
struct __attribute__((may_alias, aligned(8))) uint2 {
  uint32_t x, y;
};
struct __attribute__((may_alias, aligned(16))) uint4 {
  uint32_t x, y, z, w;
};
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x = 1) : x(x) {}  // NOLINT: as CUDA's converts
};

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
constexpr int warpSize = 32;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoKernelImageForDevice = 209,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,  // read when it runs, as memory of the device
};
struct CUstream_st;
using cudaStream_t = CUstream_st*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace cuda_emulation {

// Work of the one stream that there is. It runs when the stream is waited for, not before.
void Enqueue(std::function<void()> work);

// From here on threads and blocks run in an order drawn from `seed`; 0: in that of their indices.
void ShuffleOrder(uint64_t seed);

// From here on the first two groups of `lanes` threads of a block take turns, and its other threads
// run after them. A round resumes each thread of a group once, up to where it waits for others;
// group 0 has the first round, and after each of these numbers of rounds it is the other's turn.
// 0 lanes: as ShuffleOrder says.
void TakeTurns(unsigned lanes, std::vector<int64_t> switches = {});
// How many rounds the longest of such blocks took since TakeTurns.
int64_t MaxRounds();

// Since the program began: how often the host had to wait. A copy to the host is a wait, for it
// ends when the memory is written; to wait for the stream right after it takes no time.
int64_t NumWaits();
int64_t NumLaunches();
// The next call that can fail returns `error`.
void FailNextCall(cudaError_t error);
cudaError_t TakeFailure();

void RunGrid(dim3 num_blocks, dim3 num_threads, const std::function<void()>& thread);

// Lets other threads run first, now and then.
void MayYield();
// What lane `source` passed as `bits`; all lanes of `mask` must get here.
uint64_t Shuffle(uint32_t mask, uint64_t bits, int source);
uint32_t Ballot(uint32_t mask, bool predicate);
int Lane();

template <typename T>
T ShuffleValue(uint32_t mask, T value, int source) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  bits = Shuffle(mask, bits, source);
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T, typename Update>
T Atomic(T* address, const Update& update) {
  MayYield();
  const T old = *address;
  *address = update(old);
  return old;
}

}  // namespace cuda_emulation

void __syncthreads();
inline void __syncwarp(uint32_t mask = ~0u) { cuda_emulation::Ballot(mask, false); }
inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
  return cuda_emulation::Ballot(mask, predicate != 0);
}
template <typename T>
T __shfl_sync(uint32_t mask, T value, int source) {
  return cuda_emulation::ShuffleValue(mask, value, source);
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int lanes) {
  return cuda_emulation::ShuffleValue(mask, value, cuda_emulation::Lane() ^ lanes);
}

template <typename T>
T atomicAdd(T* address, T value) {
  static_assert(static_cast<T>(0.5) == 0, "sums of floats depend on their order");
  return cuda_emulation::Atomic(address, [&](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMin(T* address, T value) {
  return cuda_emulation::Atomic(address, [&](T old) { return old < value ? old : value; });
}
template <typename T>
T atomicOr(T* address, T value) {
  return cuda_emulation::Atomic(address, [&](T old) { return old | value; });
}
template <typename T>
T atomicCAS(T* address, T expected, T value) {
  return cuda_emulation::Atomic(address, [&](T old) { return old == expected ? value : old; });
}

inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

template <typename T>
T __ldg(const T* address) {
  return *address;
}

cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

// There is one stream, and memory that is freed does not come back.
constexpr unsigned cudaStreamNonBlocking = 1;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
struct CUmemPoolHandle_st;
using cudaMemPool_t = CUmemPoolHandle_st*;
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold };
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);

// Times of the processor: they say nothing about a GPU.
struct CUevent_st;
using cudaEvent_t = CUevent_st*;
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventElapsedTime(float* millis, cudaEvent_t first, cudaEvent_t last);
cudaError_t cudaEventDestroy(cudaEvent_t event);

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  if (const cudaError_t error = cuda_emulation::TakeFailure(); error != cudaSuccess) return error;
  cuda_emulation::Enqueue([=, num_blocks = config->gridDim, num_threads = config->blockDim] {
    cuda_emulation::RunGrid(num_blocks, num_threads,
                            [&] { kernel(static_cast<Parameters>(arguments)...); });
  });
  return cudaSuccess;
}

#endif  // FUSED_EMBEDDING_TESTS_CUDA_EMULATION_CUDA_RUNTIME_H_
