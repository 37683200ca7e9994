#include "tf_ops/kernels/prune_and_fill_kernel.h"

#include "tf_ops/kernels/cuda/tf_gpu_exec.h"

namespace fused_embedding {
namespace {

class GpuPruneAndFill {
 public:
  explicit GpuPruneAndFill(tensorflow::OpKernelContext* ctx) : exec_(ctx) {}

  template <typename Weight>
  Status Plan(const PruneAndFillInput<Weight>& in, Span<bool> is_row_empty,
              PruneAndFillPlan* plan) {
    FE_RETURN_IF_ERROR(PlanPruneAndFill(exec_, in, is_row_empty, &plan_));
    *plan = plan_.sizes;
    return Status();
  }

  template <typename Weight>
  Status Run(const PruneAndFillInput<Weight>& in, Span<const bool> is_row_empty,
             const PruneAndFillOutput<Weight>& out) const {
    return RunPruneAndFill(exec_, in, plan_, is_row_empty, out);
  }

  template <typename Weight>
  Status Grad(const PruneAndFillInput<Weight>& in, Span<const Weight> kept_grad,
              Span<Weight> weights_grad) const {
    return PruneAndFillGrad(exec_, in, kept_grad, weights_grad);
  }

 private:
  TfGpuExec exec_;
  GpuPruneAndFillPlan plan_;
};

#define FE_REGISTER(W) FE_REGISTER_PRUNE_AND_FILL(tensorflow::DEVICE_GPU, GpuPruneAndFill, W)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
