// Algorithms over device memory, by CUB. All of them are enqueued, and give the same result in each
// run.

#ifndef FUSED_EMBEDDING_CORE_BASE_CUDA_ALGORITHM_H_
#define FUSED_EMBEDDING_CORE_BASE_CUDA_ALGORITHM_H_

#include <cstdint>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Device memory to device memory.
Status CopyOnDevice(const GpuExec& exec, const void* from, int64_t num_bytes, void* to);

// sums[i] = in[0] + ... + in[i - 1]. `sums` has the size of `in`. Sum is int32_t or int64_t.
template <typename Sum>
Status ExclusiveSum(const GpuExec& exec, Span<const int32_t> in, Span<Sum> sums);

// Items by their keys; those of one key stay in order. Keys are below `num_keys`, at most 2^32.
//
//   keys [2, 0, 2]  ->  sorted_keys [0, 2, 2]  order [1, 0, 2]
struct SortedKeys {
  DeviceBuffer<uint32_t> keys;  // [n]
  DeviceBuffer<int32_t> order;  // [n]
};
Status SortByKey(const GpuExec& exec, Span<const uint32_t> keys, int64_t num_keys,
                 SortedKeys* sorted);

// splits[k] is the number of keys below k; `splits` has one element more than there are keys.
//
//   sorted_keys [0, 2, 2], 3 keys  ->  splits [0, 1, 1, 3]
Status SplitByKey(const GpuExec& exec, Span<const uint32_t> sorted_keys, Span<int32_t> splits);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_CUDA_ALGORITHM_H_
