// The limits of shards in device memory, for whatever kernel sends ids to them.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PARTITION_CU_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PARTITION_CU_H_

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/rows/shard_map.h"
#include "tf_ops/core/lookup/stages/partition.h"

namespace fused_embedding {

inline Status UploadShards(const GpuExec& exec, const PartitionInput& in, const ShardMap& map,
                           GpuPartitionPlan* plan) {
  FE_RETURN_IF_ERROR(Upload(exec, in.shard_rows, &plan->shard_rows));
  return Upload(exec, map.first_ids(), &plan->first_ids);
}

inline ShardMapView OnDevice(const ShardMap& map, const GpuPartitionPlan& plan) {
  ShardMapView view = map.view();
  view.shard_rows = plan.shard_rows.data();
  view.first_ids = plan.first_ids.data();
  return view;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PARTITION_CU_H_
