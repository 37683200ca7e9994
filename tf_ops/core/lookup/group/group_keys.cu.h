// The keys of a group of columns on a GPU: what tables in its memory are asked for.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_KEYS_CU_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_KEYS_CU_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/group/group_keys.h"

namespace fused_embedding {

struct GpuGroupKeys {
  std::vector<PairOrder> orders;           // of each column's pairs
  std::vector<int32_t> default_positions;  // of each column: DefaultPosition's code
  std::vector<int64_t> ends;               // [num_tables] where the keys of each table end
  // [ends.back()] of one table after those of another, in buffers that may be larger.
  DeviceBuffer<int64_t> keys;
  DeviceBuffer<int32_t> counts;  // occurrences
};

// As FindGroupKeys on a CPU, with the same keys in the same order; the arrays of `in` are in device
// memory. Waits once.
template <typename T>
Status FindGroupKeys(const GpuExec& exec, const GroupKeysInput<T>& in, GpuGroupKeys* keys);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_KEYS_CU_H_
