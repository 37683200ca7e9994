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

// The number of rows up to the last one that has an id; rows must not decrease.
Status ReadRowsUpToLastId(OpKernelContext* ctx, int64_t* num_rows) {
  const Tensor* indices = nullptr;
  ctx->input("indices_before_unique", &indices).IgnoreError();  // its registration has the name
  if (indices->dims() != 2 || indices->dim_size(1) < 1) {
    return InvalidArgument("indices_before_unique must be a matrix [num_pairs, 2], got shape ",
                           indices->shape().DebugString());
  }
  const auto rows = indices->matrix<int64_t>();
  int64_t last = -1;
  for (int64_t i = 0; i < indices->dim_size(0); ++i) {
    if (rows(i, 0) < std::max<int64_t>(last, 0)) {
      return RowDecreases("indices_before_unique", i, rows(i, 0), last);
    }
    last = rows(i, 0);
  }
  if (last == std::numeric_limits<int64_t>::max()) {
    return ResourceExhausted("cannot make ", last, " rows; use smaller row numbers");
  }
  *num_rows = last + 1;
  return Status();
}

template <typename T, bool kIsV2>
class PostLookupOp : public tensorflow::OpKernel {
 public:
  explicit PostLookupOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadPostLookupAttrs(ctx, &attrs_));
    if (kIsV2) rows_end_at_last_id_ = GetAttr<bool>(ctx, "rows_end_at_last_id");
  }

  void Compute(OpKernelContext* ctx) override {
    int64_t num_rows = 0;
    if (rows_end_at_last_id_) {
      FE_REQUIRES_OK(ctx, ReadRowsUpToLastId(ctx, &num_rows));
    } else {
      const Tensor* dense_shape = nullptr;
      OP_REQUIRES_OK(ctx, ctx->input("sp_dense_shape", &dense_shape));
      FE_REQUIRES_OK(ctx, ReadNumRows(*dense_shape, &num_rows));
    }
    PairsInput<T> in;
    FE_REQUIRES_OK(ctx, kIsV2 ? ReadPairsV2(ctx, attrs_, num_rows, &in)
                              : ReadPairsV1(ctx, attrs_, num_rows, &in));
    const TfExec exec(ctx);
    PostLookupPlan<CoreType<T>> plan;
    FE_REQUIRES_OK(ctx, PlanPostLookup(exec, in.pairs, &plan));
    Tensor* combined = nullptr;
    Tensor* num_ids = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_rows, in.pairs.dim}, &combined));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {num_rows}, &num_ids));
    RunPostLookup(exec, in.pairs, plan, OutputSpan<T>(combined), OutputSpan<int32_t>(num_ids));
  }

 private:
  PostLookupAttrs attrs_;
  bool rows_end_at_last_id_ = false;
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
