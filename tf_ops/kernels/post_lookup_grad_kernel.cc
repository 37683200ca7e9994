#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/post_lookup_grad.h"
#include "tf_ops/kernels/pairs_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename T, bool kIsV2>
class PostLookupGradOp : public tensorflow::OpKernel {
 public:
  explicit PostLookupGradOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadPostLookupAttrs(ctx, &attrs_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor* feature_nums = nullptr;
    OP_REQUIRES_OK(ctx, ctx->input("feature_nums", &feature_nums));
    int64_t num_rows = 0;
    FE_REQUIRES_OK(ctx, ReadTopGrad(ctx, &num_rows));
    PairsInput<T> in;
    FE_REQUIRES_OK(ctx, kIsV2 ? ReadPairsV2(ctx, attrs_, num_rows, &in)
                              : ReadPairsV1(ctx, attrs_, num_rows, &in));
    PostLookupGradPlan<CoreType<T>> plan;
    FE_REQUIRES_OK(ctx, PlanPostLookupGrad(in.pairs, InputSpan<int32_t>(*feature_nums), &plan));

    std::vector<CoreType<T>*> shards;
    Buffer<CoreType<T>*> rows_grad;
    FE_REQUIRES_OK(ctx, AllocateGradShards(ctx, in, &shards));
    FE_REQUIRES_OK(ctx, LocateGradRows(in, shards, &rows_grad));
    RunPostLookupGrad(TfExec(ctx), in.pairs, plan, InputSpan<T>(ctx->input(0)),
                      {rows_grad.data(), rows_grad.size()});
  }

 private:
  PostLookupAttrs attrs_;
};

#define FE_REGISTER(T)                                                 \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingSparsePostLookUpGrad")   \
                              .Device(tensorflow::DEVICE_CPU)          \
                              .TypeConstraint<T>("T"),                 \
                          PostLookupGradOp<T, false>);                 \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingSparsePostLookUpV2Grad") \
                              .Device(tensorflow::DEVICE_CPU)          \
                              .TypeConstraint<T>("T"),                 \
                          PostLookupGradOp<T, true>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
