#ifndef FUSED_EMBEDDING_CORE_TABLE_GPU_GROWTH_CU_H_
#define FUSED_EMBEDDING_CORE_TABLE_GPU_GROWTH_CU_H_

#include <vector>

#include "tf_ops/core/table/gpu/gpu_table.h"

namespace fused_embedding {

// Doubles the buckets of tables that CanGrow, in one launch.
Status DoubleGpuTables(const GpuExec& exec, const std::vector<GpuTable*>& tables);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_GPU_GROWTH_CU_H_
