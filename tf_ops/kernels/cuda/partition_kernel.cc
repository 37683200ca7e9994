#include "tf_ops/kernels/partition_kernel.h"

#include "tf_ops/kernels/cuda/tf_gpu_exec.h"

namespace fused_embedding {
namespace {

class GpuPartition {
 public:
  explicit GpuPartition(tensorflow::OpKernelContext* ctx) : exec_(ctx) {}

  Status Plan(const PartitionInput& in, Span<int32_t> permutation, Span<int64_t> shard_sizes) {
    return PlanPartition(exec_, in, permutation, shard_sizes, &plan_);
  }

  Status Run(const PartitionInput& in, Span<const int32_t> permutation,
             Span<const Span<int64_t>> shards) {
    return RunPartition(exec_, in, plan_, permutation, shards);
  }

 private:
  TfGpuExec exec_;
  GpuPartitionPlan plan_;
};

FE_REGISTER_PARTITION(tensorflow::DEVICE_GPU, GpuPartition)

}  // namespace
}  // namespace fused_embedding
