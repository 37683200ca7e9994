// The op of stage 2 for any device.
//
// Core calls the stage on the device: Plan, which may write unique_idx, and Run, which does where
// Plan did not.

#ifndef FUSED_EMBEDDING_KERNELS_UNIQUE_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_UNIQUE_KERNEL_H_

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/stages/unique.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <template <typename, typename> class Core, typename Id, typename Index>
class UniqueOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& ids = ctx->input(0);
    FE_REQUIRES_OK(ctx, CheckVector("input", ids));
    tensorflow::Tensor* unique_idx = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, ids.shape(), &unique_idx));
    Core<Id, Index> core(ctx);
    int64_t num_unique = 0;
    FE_REQUIRES_OK(ctx, core.Plan(InputSpan<Id>(ids), OutputSpan<Index>(unique_idx), &num_unique));

    tensorflow::Tensor* unique_ids = nullptr;
    tensorflow::Tensor* counts = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_unique}, &unique_ids));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, {num_unique}, &counts));
    FE_REQUIRES_OK(ctx, core.Run(InputSpan<Id>(ids), OutputSpan<Index>(unique_idx),
                                 OutputSpan<Id>(unique_ids), OutputSpan<Index>(counts)));
  }
};

// All tensors are on the device.
#define FE_REGISTER_UNIQUE(device, Core, Id, Index)                  \
  REGISTER_KERNEL_BUILDER(Name("UniqueWithCountsV3")                 \
                              .Device(device)                        \
                              .TypeConstraint<Id>("KeyType")         \
                              .TypeConstraint<Index>("CounterType"), \
                          UniqueOp<Core, Id, Index>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_UNIQUE_KERNEL_H_
