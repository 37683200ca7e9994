#include "tf_ops/kernels/partition_kernel.h"

namespace fused_embedding {
namespace {

class CpuPartition {
 public:
  explicit CpuPartition(tensorflow::OpKernelContext*) {}

  Status Plan(const PartitionInput& in, Span<int32_t> permutation, Span<int64_t> shard_sizes) {
    return PlanPartition(in, permutation, shard_sizes);
  }

  Status Run(const PartitionInput& in, Span<const int32_t> permutation,
             Span<const Span<int64_t>> shards) {
    RunPartition(in, permutation, shards);
    return Status();
  }
};

FE_REGISTER_PARTITION(tensorflow::DEVICE_CPU, CpuPartition)

}  // namespace
}  // namespace fused_embedding
