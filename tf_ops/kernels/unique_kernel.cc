#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/unique.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename Id, typename Index>
class UniqueOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& ids = ctx->input(0);
    FE_REQUIRES_OK(ctx, CheckVector("input", ids));
    Tensor* unique_idx = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, ids.shape(), &unique_idx));
    UniquePlan<Id> plan;
    FE_REQUIRES_OK(
        ctx, PlanUnique(TfExec(ctx), InputSpan<Id>(ids), OutputSpan<Index>(unique_idx), &plan));

    Tensor* unique_ids = nullptr;
    Tensor* counts = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {plan.num_unique}, &unique_ids));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, {plan.num_unique}, &counts));
    RunUnique(plan, InputSpan<Index>(*unique_idx), OutputSpan<Id>(unique_ids),
              OutputSpan<Index>(counts));
  }
};

#define FE_REGISTER(Id, Index)                                       \
  REGISTER_KERNEL_BUILDER(Name("UniqueWithCountsV3")                 \
                              .Device(tensorflow::DEVICE_CPU)        \
                              .TypeConstraint<Id>("KeyType")         \
                              .TypeConstraint<Index>("CounterType"), \
                          UniqueOp<Id, Index>);
FE_REGISTER(int32_t, int32_t)
FE_REGISTER(int32_t, int64_t)
FE_REGISTER(int64_t, int32_t)
FE_REGISTER(int64_t, int64_t)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
