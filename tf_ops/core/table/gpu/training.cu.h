// Training lookups: keys get a row when they are admitted.

#ifndef FUSED_EMBEDDING_CORE_TABLE_GPU_TRAINING_CU_H_
#define FUSED_EMBEDDING_CORE_TABLE_GPU_TRAINING_CU_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/table/gpu/gpu_table.h"

namespace fused_embedding {

// Where some of the tables count keys first, one batch of all keys and, behind them, the keys of
// these tables once more, in their tables of counts. A key is used in one of the two.
struct GpuTrainingPlan {
  GpuInsertPlan insert;
  // Empty where no table counts:
  std::vector<GpuTable*> tables;
  std::vector<int64_t> ends, steps;
  DeviceBuffer<int64_t> keys;
  DeviceBuffer<bool> is_used;
  DeviceBuffer<int32_t> counts;  // what each key adds to a frequency
};

// PlanGpuInsert of the keys that have a row, or are admitted by this batch: a row at the
// min_frequency-th occurrence, its frequency all occurrences. Keys are distinct, and all are used.
// Waits as PlanGpuInsert does; if it fails, no row and no count has changed.
Status PlanGpuTraining(const GpuExec& exec, const GpuTableKeys& in, const GpuUses& uses,
                       GpuTrainingPlan* plan);

// RunGpuFindOrInsert of these keys. The others are counted, and read no_permission_value. A key
// that is admitted and whose bucket refuses it keeps the count that it had.
Status RunGpuTraining(const GpuExec& exec, const GpuTableKeys& in, const GpuUses& uses,
                      const GpuTrainingPlan& plan, const GpuEvicted& evicted,
                      const GpuLookupOutput& out);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_GPU_TRAINING_CU_H_
