#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/post_lookup.h"
#include "tf_ops/kernels/pairs_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

Status RowsNotSorted(const RowIds& row_ids) {
  int64_t i = 1;
  while (row_ids[i - 1] <= row_ids[i]) ++i;
  return InvalidArgument("rows must be non-decreasing, but ", row_ids.name, "[", i,
                         ", 0] = ", row_ids[i], " follows ", row_ids[i - 1],
                         "; call tf.sparse.reorder first");
}

template <typename T, bool kIsV2>
class PostLookupOp : public tensorflow::OpKernel {
 public:
  explicit PostLookupOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadPostLookupAttrs(ctx, &attrs_));
    if (kIsV2) require_sorted_rows_ = GetAttr<bool>(ctx, "require_sorted_rows");
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor* dense_shape = nullptr;
    OP_REQUIRES_OK(ctx, ctx->input("sp_dense_shape", &dense_shape));
    int64_t num_rows = 0;
    FE_REQUIRES_OK(ctx, ReadNumRows(*dense_shape, &num_rows));
    PairsInput<T> in;
    FE_REQUIRES_OK(ctx, kIsV2 ? ReadPairsV2(ctx, attrs_, num_rows, &in)
                              : ReadPairsV1(ctx, attrs_, num_rows, &in));
    const TfExec exec(ctx);
    PostLookupPlan<CoreType<T>> plan;
    FE_REQUIRES_OK(ctx, PlanPostLookup(exec, in.pairs, &plan));
    if (require_sorted_rows_ && !plan.by_row.is_identity) {
      FE_REQUIRES_OK(ctx, RowsNotSorted(in.pairs.row_ids));
    }

    Tensor* combined = nullptr;
    Tensor* num_ids = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_rows, in.pairs.dim}, &combined));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {num_rows}, &num_ids));
    RunPostLookup(exec, in.pairs, plan, OutputSpan<T>(combined), OutputSpan<int32_t>(num_ids));
  }

 private:
  PostLookupAttrs attrs_;
  bool require_sorted_rows_ = false;
};

#define FE_REGISTER(T)                                             \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingSparsePostLookUp")   \
                              .Device(tensorflow::DEVICE_CPU)      \
                              .TypeConstraint<T>("T"),             \
                          PostLookupOp<T, false>);                 \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingSparsePostLookUpV2") \
                              .Device(tensorflow::DEVICE_CPU)      \
                              .TypeConstraint<T>("T"),             \
                          PostLookupOp<T, true>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
