// The ops of the gradient of stage 5's weights for any device.
//
// Core has the pairs of an op on its device, and calls the stage with them: Plan reads and checks
// them, Run writes the gradients of the weights of all pairs to outputs, one after the other.

#ifndef FUSED_EMBEDDING_KERNELS_POST_LOOKUP_WEIGHTS_GRAD_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_POST_LOOKUP_WEIGHTS_GRAD_KERNEL_H_

#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/stages/post_lookup_weights_grad.h"
#include "tf_ops/kernels/pairs_input.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <typename Core, typename T, bool kIsV2>
class PostLookupWeightsGradOp : public tensorflow::OpKernel {
 public:
  explicit PostLookupWeightsGradOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadPostLookupAttrs(ctx, &attrs_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    int64_t num_rows = 0;
    FE_REQUIRES_OK(ctx, ReadTopGrad(ctx, &num_rows));
    Core core(ctx);
    FE_REQUIRES_OK(ctx, core.Plan(attrs_, kIsV2, num_rows));
    // Output p has the shape and the type of weights input p.
    std::vector<tensorflow::Tensor*> outputs(static_cast<size_t>(ctx->num_outputs()));
    for (int p = 0; p < ctx->num_outputs(); ++p) {
      const int input = ctx->num_inputs() - ctx->num_outputs() + p;
      OP_REQUIRES_OK(ctx, ctx->allocate_output(p, ctx->input(input).shape(),
                                               &outputs[static_cast<size_t>(p)]));
    }
    const int64_t dim = core.in().pairs.dim;
    FE_REQUIRES_OK(ctx, core.Run({InputSpan<T>(ctx->input(0)).data, dim}, outputs));
  }

 private:
  PostLookupAttrs attrs_;
};

#define FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD_OF(name, device, Core, T, W, is_v2) \
  REGISTER_KERNEL_BUILDER(                                                       \
      Name(name).Device(device).TypeConstraint<T>("T").TypeConstraint<W>("Tw"),  \
      PostLookupWeightsGradOp<Core<T>, T, is_v2>);
#define FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD_OF_WEIGHTS(device, Core, T, W)                      \
  FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD_OF("FusedEmbeddingSparsePostLookUpWeightsGrad", device,   \
                                          Core, T, W, false)                                     \
  FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD_OF("FusedEmbeddingSparsePostLookUpV2WeightsGrad", device, \
                                          Core, T, W, true)
#define FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD(device, Core, T)                   \
  FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD_OF_WEIGHTS(device, Core, T, float)       \
  FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD_OF_WEIGHTS(device, Core, T, double)      \
  FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD_OF_WEIGHTS(device, Core, T, Eigen::half) \
  FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD_OF_WEIGHTS(device, Core, T, Eigen::bfloat16)

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_POST_LOOKUP_WEIGHTS_GRAD_KERNEL_H_
