// The algorithms of CUB that tf_ops/core uses, by those of the standard library. As CUB's, each is
// called twice: first for the size of its scratch memory.

#ifndef FUSED_EMBEDDING_TESTS_CUDA_EMULATION_CUB_CUB_CUH_
#define FUSED_EMBEDDING_TESTS_CUDA_EMULATION_CUB_CUB_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace cub {

struct DeviceScan {
  template <typename In, typename Out, typename Add, typename Init, typename Size>
  static cudaError_t ExclusiveScan(void* scratch, size_t& scratch_bytes, In in, Out out, Add add,
                                   Init init, Size size, cudaStream_t) {
    if (scratch == nullptr) {
      scratch_bytes = 1;
      return cudaSuccess;
    }
    cuda_emulation::Enqueue([=] { std::exclusive_scan(in, in + size, out, init, add); });
    return cudaSuccess;
  }
};

struct DeviceRadixSort {
  template <typename Key, typename Value, typename Size>
  static cudaError_t SortPairs(void* scratch, size_t& scratch_bytes, const Key* keys,
                               Key* sorted_keys, const Value* values, Value* sorted_values,
                               Size size, int begin_bit, int end_bit, cudaStream_t) {
    if (scratch == nullptr) {
      scratch_bytes = 1;
      return cudaSuccess;
    }
    cuda_emulation::Enqueue([=] {
      // Only these bits, as CUB does: the others need not be in order.
      const auto digits = [=](Size i) {
        return (keys[i] >> begin_bit) & ((uint64_t{1} << (end_bit - begin_bit)) - 1);
      };
      std::vector<Size> order(static_cast<size_t>(size));
      std::iota(order.begin(), order.end(), Size{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](Size a, Size b) { return digits(a) < digits(b); });
      for (Size i = 0; i < size; ++i) {
        sorted_keys[i] = keys[order[static_cast<size_t>(i)]];
        sorted_values[i] = values[order[static_cast<size_t>(i)]];
      }
    });
    return cudaSuccess;
  }
};

}  // namespace cub

#endif  // FUSED_EMBEDDING_TESTS_CUDA_EMULATION_CUB_CUB_CUH_
