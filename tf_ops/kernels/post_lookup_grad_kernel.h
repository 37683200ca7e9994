// The ops of stage 6 for any device.
//
// Core has the pairs of an op on its device, and calls the stage with them: Plan reads and checks
// them, Run writes the gradients of all shards.

#ifndef FUSED_EMBEDDING_KERNELS_POST_LOOKUP_GRAD_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_POST_LOOKUP_GRAD_KERNEL_H_

#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/stages/post_lookup_grad.h"
#include "tf_ops/kernels/pairs_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <typename Core, typename T, bool kIsV2>
class PostLookupGradOp : public tensorflow::OpKernel {
 public:
  explicit PostLookupGradOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadPostLookupAttrs(ctx, &attrs_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor* feature_nums = nullptr;
    OP_REQUIRES_OK(ctx, ctx->input("feature_nums", &feature_nums));
    int64_t num_rows = 0;
    FE_REQUIRES_OK(ctx, ReadTopGrad(ctx, &num_rows));
    Core core(ctx);
    FE_REQUIRES_OK(ctx, core.Plan(attrs_, kIsV2, num_rows, InputSpan<int32_t>(*feature_nums)));
    std::vector<CoreType<T>*> shards;
    FE_REQUIRES_OK(ctx, AllocateGradShards(ctx, core.in(), &shards));
    FE_REQUIRES_OK(ctx, core.Run(InputSpan<T>(ctx->input(0)), shards));
  }

 private:
  PostLookupAttrs attrs_;
};

#define FE_REGISTER_POST_LOOKUP_GRAD(device, Core, T)                                     \
  REGISTER_KERNEL_BUILDER(                                                                \
      Name("FusedEmbeddingSparsePostLookUpGrad").Device(device).TypeConstraint<T>("T"),   \
      PostLookupGradOp<Core<T>, T, false>);                                               \
  REGISTER_KERNEL_BUILDER(                                                                \
      Name("FusedEmbeddingSparsePostLookUpV2Grad").Device(device).TypeConstraint<T>("T"), \
      PostLookupGradOp<Core<T>, T, true>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_POST_LOOKUP_GRAD_KERNEL_H_
