#include "tf_ops/kernels/pre_lookup_kernel.h"

#include "tf_ops/kernels/cuda/tf_gpu_exec.h"

namespace fused_embedding {
namespace {

class GpuPreLookup {
 public:
  explicit GpuPreLookup(tensorflow::OpKernelContext* ctx) : exec_(ctx) {}

  Status Plan(const PreLookupInput& in, Span<int32_t> flags, Span<int64_t> shard_sizes) {
    return PlanPreLookup(exec_, in, flags, shard_sizes, &plan_);
  }

  Status Run(const PreLookupInput& in, Span<const Span<int64_t>> shard_ids,
             Span<const Span<int64_t>> shard_indices) {
    return RunPreLookup(exec_, in, plan_, shard_ids, shard_indices);
  }

 private:
  TfGpuExec exec_;
  GpuPreLookupPlan plan_;
};

FE_REGISTER_PRE_LOOKUP(tensorflow::DEVICE_GPU, GpuPreLookup)

}  // namespace
}  // namespace fused_embedding
