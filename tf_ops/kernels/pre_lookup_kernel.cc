#include "tf_ops/kernels/pre_lookup_kernel.h"

namespace fused_embedding {
namespace {

class CpuPreLookup {
 public:
  explicit CpuPreLookup(tensorflow::OpKernelContext*) {}

  Status Plan(const PreLookupInput& in, Span<int32_t> flags, Span<int64_t> shard_sizes) {
    return PlanPreLookup(in, flags, shard_sizes, &plan_);
  }

  Status Run(const PreLookupInput& in, Span<const Span<int64_t>> shard_ids,
             Span<const Span<int64_t>> shard_indices) {
    RunPreLookup(in, plan_, shard_ids, shard_indices);
    return Status();
  }

 private:
  PreLookupPlan plan_;
};

FE_REGISTER_PRE_LOOKUP(tensorflow::DEVICE_CPU, CpuPreLookup)

}  // namespace
}  // namespace fused_embedding
