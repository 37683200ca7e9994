// The ops of stage 5 for any device.
//
// Core has the pairs of an op on its device, and calls the stage with them: Plan reads and checks
// them, Run writes the results. LastRow is that of the last pair, or -1; rows must not decrease.

#ifndef FUSED_EMBEDDING_KERNELS_POST_LOOKUP_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_POST_LOOKUP_KERNEL_H_

#include <limits>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/stages/post_lookup.h"
#include "tf_ops/kernels/pairs_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <typename Core, typename T, bool kIsV2>
class PostLookupOp : public tensorflow::OpKernel {
 public:
  explicit PostLookupOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadPostLookupAttrs(ctx, &attrs_));
    if (kIsV2) rows_end_at_last_id_ = GetAttr<bool>(ctx, "rows_end_at_last_id");
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    Core core(ctx);
    int64_t num_rows = 0;
    FE_REQUIRES_OK(ctx, rows_end_at_last_id_ ? CountRowsUpToLastId(ctx, core, &num_rows)
                                             : ReadDenseShape(ctx, &num_rows));
    FE_REQUIRES_OK(ctx, core.Plan(attrs_, kIsV2, num_rows));
    tensorflow::Tensor* combined = nullptr;
    tensorflow::Tensor* num_ids = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_rows, core.in().pairs.dim}, &combined));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {num_rows}, &num_ids));
    FE_REQUIRES_OK(ctx, core.Run(OutputSpan<T>(combined), OutputSpan<int32_t>(num_ids)));
  }

 private:
  static Status ReadDenseShape(tensorflow::OpKernelContext* ctx, int64_t* num_rows) {
    const tensorflow::Tensor* dense_shape = nullptr;
    ctx->input("sp_dense_shape", &dense_shape).IgnoreError();  // its registration has the name
    return ReadNumRows(*dense_shape, num_rows);
  }

  static Status CountRowsUpToLastId(tensorflow::OpKernelContext* ctx, const Core& core,
                                    int64_t* num_rows) {
    const char* name = "indices_before_unique";
    const tensorflow::Tensor* indices = nullptr;
    ctx->input(name, &indices).IgnoreError();  // its registration has the name
    if (indices->dims() != 2 || indices->dim_size(1) < 1) {
      return InvalidArgument(name, " must be a matrix [num_pairs, 2], got shape ",
                             indices->shape().DebugString());
    }
    int64_t last = -1;
    FE_RETURN_IF_ERROR(core.LastRow(
        {InputSpan<int64_t>(*indices).data, indices->dim_size(0), indices->dim_size(1), name},
        &last));
    if (last == std::numeric_limits<int64_t>::max()) {
      return ResourceExhausted("cannot make ", last, " rows; use smaller row numbers");
    }
    *num_rows = last + 1;
    return Status();
  }

  PostLookupAttrs attrs_;
  bool rows_end_at_last_id_ = false;
};

// Shapes are on the host.
#define FE_REGISTER_POST_LOOKUP(device, Core, T)                   \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingSparsePostLookUp")   \
                              .Device(device)                      \
                              .HostMemory("sp_dense_shape")        \
                              .TypeConstraint<T>("T"),             \
                          PostLookupOp<Core<T>, T, false>);        \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingSparsePostLookUpV2") \
                              .Device(device)                      \
                              .HostMemory("sp_dense_shape")        \
                              .TypeConstraint<T>("T"),             \
                          PostLookupOp<Core<T>, T, true>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_POST_LOOKUP_KERNEL_H_
