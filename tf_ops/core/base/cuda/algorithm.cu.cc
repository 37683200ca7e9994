#include "tf_ops/core/base/cuda/algorithm.h"

#include <cub/cub.cuh>

#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {
namespace {

// Calls an algorithm of CUB with the scratch memory that it asks for.
template <typename Algorithm>
Status WithScratch(const GpuExec& exec, const char* what, const Algorithm& algorithm) {
  size_t bytes = 0;
  FE_RETURN_IF_ERROR(CudaStatus(algorithm(nullptr, bytes), what));
  DeviceBuffer<char> scratch;
  // Never null, which would ask for the size once more.
  FE_RETURN_IF_ERROR(scratch.Allocate(exec, static_cast<int64_t>(bytes > 0 ? bytes : 1)));
  return CudaStatus(algorithm(scratch.data(), bytes), what);
}

// Not CUB's or the C++ library's: their names and headers change with the toolkit.
struct Add {
  template <typename A, typename B>
  __host__ __device__ auto operator()(A a, B b) const {
    return a + b;
  }
};

__global__ void CountUpKernel(int32_t* numbers, int64_t size) {
  for (int64_t i = ThreadOfGrid(); i < size; i += NumThreadsOfGrid()) {
    numbers[i] = static_cast<int32_t>(i);
  }
}

// A binary search for each key: keys that occur often, or never, cost no more than others.
__global__ void SplitByKeyKernel(const uint32_t* __restrict__ sorted_keys, int64_t num_items,
                                 int32_t* __restrict__ splits, int64_t num_splits) {
  for (int64_t key = ThreadOfGrid(); key < num_splits; key += NumThreadsOfGrid()) {
    int64_t low = 0, high = num_items;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (sorted_keys[middle] < key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    splits[key] = static_cast<int32_t>(low);
  }
}

}  // namespace

Status CopyOnDevice(const GpuExec& exec, const void* from, int64_t num_bytes, void* to) {
  return CudaStatus(cudaMemcpyAsync(to, from, static_cast<size_t>(num_bytes),
                                    cudaMemcpyDeviceToDevice, exec.stream()),
                    "copy on the device");
}

template <typename Sum>
Status ExclusiveSum(const GpuExec& exec, Span<const int32_t> in, Span<Sum> sums) {
  if (in.empty()) return Status();
  return WithScratch(exec, "add up", [&](void* scratch, size_t& bytes) {
    return cub::DeviceScan::ExclusiveScan(scratch, bytes, in.data, sums.data, Add(), Sum{0},
                                          in.size, exec.stream());
  });
}

template Status ExclusiveSum(const GpuExec&, Span<const int32_t>, Span<int32_t>);
template Status ExclusiveSum(const GpuExec&, Span<const int32_t>, Span<int64_t>);

Status SortByKey(const GpuExec& exec, Span<const uint32_t> keys, int64_t num_keys,
                 SortedKeys* sorted) {
  FE_RETURN_IF_ERROR(sorted->keys.Allocate(exec, keys.size));
  FE_RETURN_IF_ERROR(sorted->order.Allocate(exec, keys.size));
  if (keys.empty()) return Status();
  DeviceBuffer<int32_t> numbers;
  FE_RETURN_IF_ERROR(numbers.Allocate(exec, keys.size));
  FE_RETURN_IF_ERROR(Launch(exec, keys.size, CountUpKernel, numbers.data(), keys.size));
  // Fewer bits are fewer passes, of eight bits each.
  int num_bits = 1;
  while (num_bits < 32 && (int64_t{1} << num_bits) < num_keys) ++num_bits;
  return WithScratch(exec, "sort", [&](void* scratch, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs<uint32_t, int32_t, int64_t>(
        scratch, bytes, keys.data, sorted->keys.data(), numbers.data(), sorted->order.data(),
        keys.size, 0, num_bits, exec.stream());
  });
}

Status SplitByKey(const GpuExec& exec, Span<const uint32_t> sorted_keys, Span<int32_t> splits) {
  return Launch(exec, splits.size, SplitByKeyKernel, sorted_keys.data, sorted_keys.size,
                splits.data, splits.size);
}

}  // namespace fused_embedding
