// Calls of the CUDA runtime that return a Status. Every call and launch of core goes through here.

#ifndef FUSED_EMBEDDING_CORE_BASE_CUDA_LAUNCH_CU_H_
#define FUSED_EMBEDDING_CORE_BASE_CUDA_LAUNCH_CU_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Threads of a block, of every kernel: eight blocks fill a multiprocessor.
constexpr int kBlockSize = 256;
// Blocks on a multiprocessor of a kernel that holds rows in registers: 80 for each thread. A third
// of the threads that there could be, with four loads each in flight, cover the latency of memory;
// aiming at more of them, ptxas spills.
constexpr int kMinBlocks = 3;

inline Status CudaStatus(cudaError_t error, const char* what) {
  switch (static_cast<int>(error)) {
    case cudaSuccess:
      return Status();
    case cudaErrorMemoryAllocation:
      return ResourceExhausted("no device memory to ", what,
                               "; use a smaller batch or smaller tables");
    case cudaErrorNoKernelImageForDevice:
      return MakeStatus(StatusCode::kFailedPrecondition,
                        "this build has no code for the GPU, which was needed to ", what,
                        "; build with FE_CUDA_ARCHITECTURES for it, or place the ops on the CPU");
    default:
      return MakeStatus(StatusCode::kInternal, "CUDA cannot ", what, ": ", cudaGetErrorName(error),
                        ", ", cudaGetErrorString(error),
                        "; an earlier kernel may be at fault: CUDA_LAUNCH_BLOCKING=1 names it");
  }
}

// Runs `kernel` on exactly this many blocks.
template <typename... Parameters, typename... Arguments>
Status LaunchBlocks(const GpuExec& exec, int64_t num_blocks, void (*kernel)(Parameters...),
                    Arguments&&... arguments) {
  if (num_blocks == 0) return Status();
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(kBlockSize);
  config.stream = exec.stream();
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
                    "launch a kernel");
}

// Runs `kernel`, whose loop takes steps of all threads, for `num_items`: about a thread for each.
template <typename... Parameters, typename... Arguments>
Status Launch(const GpuExec& exec, int64_t num_items, void (*kernel)(Parameters...),
              Arguments&&... arguments) {
  // Several times what runs at once, to even out their work.
  constexpr int64_t kBlocksPerMultiprocessor = 64;
  const int64_t max_blocks = kBlocksPerMultiprocessor * exec.num_multiprocessors();
  const int64_t num_blocks = std::min(num_items / kBlockSize + (num_items % kBlockSize != 0),
                                      std::max<int64_t>(max_blocks, 1));
  return LaunchBlocks(exec, num_blocks, kernel, std::forward<Arguments>(arguments)...);
}

// The blocks of one of several items that share a grid: those after `num_blocks`, for so many units
// of work, some in each block.
inline Range TakeBlocks(int64_t num_units, int64_t units_per_block, int64_t* num_blocks) {
  const int64_t begin = *num_blocks;
  *num_blocks += num_units / units_per_block + (num_units % units_per_block != 0);
  return {begin, *num_blocks};
}

// Copies host memory, which may change as soon as this returns. Does not wait.
template <typename T>
Status CopyToDevice(const GpuExec& exec, Span<const T> host, T* device) {
  if (host.empty()) return Status();
  return CudaStatus(cudaMemcpyAsync(device, host.data, static_cast<size_t>(host.size) * sizeof(T),
                                    cudaMemcpyHostToDevice, exec.stream()),
                    "copy to the device");
}

template <typename T>
Status Upload(const GpuExec& exec, Span<const T> host, DeviceBuffer<T>* device) {
  FE_RETURN_IF_ERROR(device->Allocate(exec, host.size));
  return CopyToDevice(exec, host, device->data());
}

// Copies an array in device memory.
template <typename T>
Status CopyArray(const GpuExec& exec, Span<const T> from, T* to) {
  if (from.empty()) return Status();
  return CopyOnDevice(exec, from.data, from.size * int64_t{sizeof(T)}, to);
}

// Sets each byte.
template <typename T>
Status Fill(const GpuExec& exec, int byte, Span<T> memory) {
  if (memory.empty()) return Status();
  return CudaStatus(cudaMemsetAsync(memory.data, byte, static_cast<size_t>(memory.size) * sizeof(T),
                                    exec.stream()),
                    "set device memory");
}

// Device memory in which nothing is found yet.
inline Status AllocateFirst(const GpuExec& exec, int64_t size, DeviceBuffer<FirstPosition>* first) {
  FE_RETURN_IF_ERROR(first->Allocate(exec, size));
  return Fill(exec, 0xff, first->span());
}

// Copies device memory. `host` has it after the next WaitForStream, and is pageable: the copy waits
// for the stream on its own, so that two of them are two waits. Plan functions use Readback.
template <typename T>
Status CopyToHost(const GpuExec& exec, const T* device, Span<T> host) {
  return CudaStatus(cudaMemcpyAsync(host.data, device, static_cast<size_t>(host.size) * sizeof(T),
                                    cudaMemcpyDeviceToHost, exec.stream()),
                    "copy to the host");
}

inline Status WaitForStream(const GpuExec& exec) {
  return CudaStatus(cudaStreamSynchronize(exec.stream()), "finish the work of the stream");
}

// The host wait of a Plan function: all that it reads back comes in one copy.
//
// Not to pinned memory: that would have to be allocated for each copy, and saves no wait.
class Readback {
 public:
  // `host` has it after Wait.
  template <typename T>
  void Add(const T* device, Span<T> host) {
    if (host.empty()) return;
    pieces_.push_back({reinterpret_cast<const char*>(device), reinterpret_cast<char*>(host.data),
                       host.size * int64_t{sizeof(T)}});
  }

  Status Wait(const GpuExec& exec) const {
    int64_t bytes = 0;
    for (const Piece& piece : pieces_) bytes += piece.bytes;
    DeviceBuffer<char> gathered;
    FE_RETURN_IF_ERROR(gathered.Allocate(exec, bytes));
    char* to = gathered.data();
    for (const Piece& piece : pieces_) {
      FE_RETURN_IF_ERROR(CopyOnDevice(exec, piece.device, piece.bytes, to));
      to += piece.bytes;
    }
    std::vector<char> on_host(static_cast<size_t>(bytes));
    if (bytes > 0) FE_RETURN_IF_ERROR(CopyToHost<char>(exec, gathered.data(), AsSpan(on_host)));
    FE_RETURN_IF_ERROR(WaitForStream(exec));
    const char* from = on_host.data();
    for (const Piece& piece : pieces_) {
      std::memcpy(piece.host, from, static_cast<size_t>(piece.bytes));
      from += piece.bytes;
    }
    return Status();
  }

 private:
  struct Piece {
    const char* device;
    char* host;
    int64_t bytes;
  };
  std::vector<Piece> pieces_;
};

// One value, with a wait of its own: of the kind that an error names.
template <typename T>
Status ReadValue(const GpuExec& exec, const T* device, T* value) {
  FE_RETURN_IF_ERROR(CopyToHost<T>(exec, device, {value, 1}));
  return WaitForStream(exec);
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_CUDA_LAUNCH_CU_H_
