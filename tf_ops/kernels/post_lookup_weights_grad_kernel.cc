#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/post_lookup_weights_grad.h"
#include "tf_ops/kernels/pairs_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"
#include "tf_ops/kernels/weight_values.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Output p has the shape and the type of weights input p; `values` holds those of all, in order.
template <typename C>
void WriteWeightsGrad(OpKernelContext* ctx, Span<const C> values) {
  const int num_outputs = ctx->num_outputs();
  for (int p = 0; p < num_outputs; ++p) {
    const Tensor& weights = ctx->input(ctx->num_inputs() - num_outputs + p);
    Tensor* weights_grad = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(p, weights.shape(), &weights_grad));
    StoreWeights<C>({values.data, weights.NumElements()}, weights_grad);
    values = {values.data + weights.NumElements(), values.size - weights.NumElements()};
  }
}

template <typename T, typename W, bool kIsV2>
class PostLookupWeightsGradOp : public tensorflow::OpKernel {
 public:
  explicit PostLookupWeightsGradOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadPostLookupAttrs(ctx, &attrs_));
  }

  void Compute(OpKernelContext* ctx) override {
    using C = ComputeType<CoreType<T>>;
    int64_t num_rows = 0;
    FE_REQUIRES_OK(ctx, ReadTopGrad(ctx, &num_rows));
    PairsInput<T> in;
    FE_REQUIRES_OK(ctx, kIsV2 ? ReadPairsV2(ctx, attrs_, num_rows, &in)
                              : ReadPairsV1(ctx, attrs_, num_rows, &in));
    const TfExec exec(ctx);
    PostLookupPlan<CoreType<T>> plan;
    FE_REQUIRES_OK(ctx, PlanPostLookup(exec, in.pairs, &plan));
    Buffer<C> weights_grad;
    FE_REQUIRES_OK(ctx, weights_grad.Allocate(in.pairs.num_pairs()));
    RunPostLookupWeightsGrad(exec, in.pairs, plan, {InputSpan<T>(ctx->input(0)).data, in.pairs.dim},
                             weights_grad.span());
    WriteWeightsGrad<C>(ctx, weights_grad.span());
  }

 private:
  PostLookupAttrs attrs_;
};

#define FE_REGISTER_OP(name, T, W, is_v2)                                                       \
  REGISTER_KERNEL_BUILDER(                                                                      \
      Name(name).Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T").TypeConstraint<W>("Tw"), \
      PostLookupWeightsGradOp<T, W, is_v2>);
#define FE_REGISTER(T, W)                                                  \
  FE_REGISTER_OP("FusedEmbeddingSparsePostLookUpWeightsGrad", T, W, false) \
  FE_REGISTER_OP("FusedEmbeddingSparsePostLookUpV2WeightsGrad", T, W, true)
#define FE_REGISTER_ALL_WEIGHTS(T) \
  FE_REGISTER(T, float)            \
  FE_REGISTER(T, double)           \
  FE_REGISTER(T, Eigen::half)      \
  FE_REGISTER(T, Eigen::bfloat16)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER_ALL_WEIGHTS)
#undef FE_REGISTER_ALL_WEIGHTS
#undef FE_REGISTER
#undef FE_REGISTER_OP

}  // namespace
}  // namespace fused_embedding
