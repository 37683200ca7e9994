#include "tf_ops/kernels/sparse_apply_kernel.h"

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/kernels/cuda/tf_gpu_exec.h"

namespace fused_embedding {
namespace {

// The locks are held until the work is enqueued: whatever uses the variables is on the same stream.
class GpuSparseApply {
 public:
  explicit GpuSparseApply(tensorflow::OpKernelContext* ctx) : exec_(ctx) {}

  Status Apply(const SparseApplyInput& in) {
    GpuSparseApplyPlan plan;
    FE_RETURN_IF_ERROR(PlanSparseApply(exec_, in, &plan));
    return RunSparseApply(exec_, in, plan);
  }
  Status Copy(const tensorflow::Tensor& from, tensorflow::Tensor* to) {
    return CopyOnDevice(exec_, from.data(), static_cast<int64_t>(from.TotalBytes()), to->data());
  }

 private:
  TfGpuExec exec_;
};

FE_REGISTER_RESOURCE_SPARSE_APPLY(tensorflow::DEVICE_GPU, GpuSparseApply)

}  // namespace
}  // namespace fused_embedding
