#include "tf_ops/kernels/prune_and_fill_kernel.h"

namespace fused_embedding {
namespace {

class CpuPruneAndFill {
 public:
  explicit CpuPruneAndFill(tensorflow::OpKernelContext*) {}

  template <typename Weight>
  Status Plan(const PruneAndFillInput<Weight>& in, Span<bool> is_row_empty,
              PruneAndFillPlan* plan) {
    FE_RETURN_IF_ERROR(PlanPruneAndFill(in, is_row_empty, plan));
    plan_ = *plan;
    return Status();
  }

  template <typename Weight>
  Status Run(const PruneAndFillInput<Weight>& in, Span<const bool> is_row_empty,
             const PruneAndFillOutput<Weight>& out) const {
    RunPruneAndFill(in, plan_, is_row_empty, out);
    return Status();
  }

  template <typename Weight>
  Status Grad(const PruneAndFillInput<Weight>& in, Span<const Weight> kept_grad,
              Span<Weight> weights_grad) const {
    return PruneAndFillGrad(in, kept_grad, weights_grad);
  }

 private:
  PruneAndFillPlan plan_;
};

#define FE_REGISTER(W) FE_REGISTER_PRUNE_AND_FILL(tensorflow::DEVICE_CPU, CpuPruneAndFill, W)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
