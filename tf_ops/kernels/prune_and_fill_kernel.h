// The ops of stage 1 for any device.
//
// Core calls the stage on the device: Plan, Run and Grad, as core/lookup/stages/prune_and_fill.h
// has them.

#ifndef FUSED_EMBEDDING_KERNELS_PRUNE_AND_FILL_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_PRUNE_AND_FILL_KERNEL_H_

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/stages/prune_and_fill.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <typename Core, typename W>
class PruneAndFillOp : public tensorflow::OpKernel {
 public:
  explicit PruneAndFillOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), column_(ctx) {
    attrs_.fill = GetAttr<bool>(ctx, "fill_empty_row");
    attrs_.prune = GetAttr<bool>(ctx, "prune");
    attrs_.default_id = GetAttr<int64_t>(ctx, "default_id");
    attrs_.default_weight = GetAttr<float>(ctx, "default_weight");
    use_weights_ = GetAttr<bool>(ctx, "use_sparse_weights");
    attrs_.prune_weights = use_weights_ && GetAttr<bool>(ctx, "prune_sparse_weights");
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& ids = ctx->input(0);
    const tensorflow::Tensor& indices = ctx->input(1);
    const tensorflow::Tensor& weights = ctx->input(3);
    PruneAndFillInput<CoreType<W>> in = attrs_;
    FE_REQUIRES_OK(ctx, CheckIdsAndIndices(ids, indices));
    FE_REQUIRES_OK(ctx, ReadNumRows(ctx->input(2), &in.num_rows));
    in.ids = InputSpan<int64_t>(ids);
    in.indices = InputSpan<int64_t>(indices);
    if (use_weights_) {
      FE_REQUIRES_OK(ctx, CheckVector("sp_weights_values", weights));
      in.weights = InputSpan<W>(weights);
      OP_REQUIRES(
          ctx, in.weights.size == in.ids.size,
          ToTfStatus(InvalidArgument("sp_weights_values must hold one weight for each of the ",
                                     in.ids.size, " ids, but has ", in.weights.size)));
    }

    tensorflow::Tensor* is_row_empty = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 3, {in.num_rows}, &is_row_empty));
    Core core(ctx);
    PruneAndFillPlan plan;
    FE_REQUIRES_OK(ctx, column_.Of(core.Plan(in, OutputSpan<bool>(is_row_empty), &plan)));

    if (plan.num_kept == in.ids.size && plan.num_filled == 0) {  // nothing changes: no copy
      ctx->set_output(0, ids);
      ctx->set_output(1, indices);
      ctx->set_output(2, weights);
      return;
    }
    tensorflow::Tensor* ids_out = nullptr;
    tensorflow::Tensor* indices_out = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {plan.nnz_out()}, &ids_out));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {plan.nnz_out(), 2}, &indices_out));
    PruneAndFillOutput<CoreType<W>> out{
        OutputSpan<int64_t>(ids_out), OutputSpan<int64_t>(indices_out), {}};
    if (use_weights_) {
      tensorflow::Tensor* weights_out = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, {plan.nnz_out()}, &weights_out));
      out.weights = OutputSpan<W>(weights_out);
    } else {
      ctx->set_output(2, weights);
    }
    FE_REQUIRES_OK(ctx, core.Run(in, InputSpan<bool>(*is_row_empty), out));
  }

 private:
  ColumnName column_;
  PruneAndFillInput<CoreType<W>> attrs_;
  bool use_weights_;
};

template <typename Core, typename W>
class PruneAndFillGradOp : public tensorflow::OpKernel {
 public:
  explicit PruneAndFillGradOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    attrs_.prune = GetAttr<bool>(ctx, "prune");
    attrs_.prune_weights = GetAttr<bool>(ctx, "prune_sparse_weights");
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& ids = ctx->input(0);
    const tensorflow::Tensor& weights = ctx->input(1);
    OP_REQUIRES(ctx, ids.dims() == 1 && ids.shape() == weights.shape(),
                ToTfStatus(InvalidArgument(
                    "sp_values and sp_weights_values must be vectors of one length, got shapes ",
                    ids.shape().DebugString(), " and ", weights.shape().DebugString())));
    FE_REQUIRES_OK(ctx, CheckVector("grad", ctx->input(2)));
    PruneAndFillInput<CoreType<W>> in = attrs_;
    in.ids = InputSpan<int64_t>(ids);
    in.weights = InputSpan<W>(weights);
    tensorflow::Tensor* weights_grad = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, ids.shape(), &weights_grad));
    FE_REQUIRES_OK(ctx,
                   Core(ctx).Grad(in, InputSpan<W>(ctx->input(2)), OutputSpan<W>(weights_grad)));
  }

 private:
  PruneAndFillInput<CoreType<W>> attrs_;
};

// Ids, rows and weights are on the device.
#define FE_REGISTER_PRUNE_AND_FILL(device, Core, W)                                    \
  REGISTER_KERNEL_BUILDER(Name("PruneInvalidAndFillEmptyRows")                         \
                              .Device(device)                                          \
                              .HostMemory("sp_dense_shape")                            \
                              .TypeConstraint<W>("Tw"),                                \
                          PruneAndFillOp<Core, W>);                                    \
  REGISTER_KERNEL_BUILDER(                                                             \
      Name("PruneInvalidAndFillEmptyRowsGrad").Device(device).TypeConstraint<W>("Tw"), \
      PruneAndFillGradOp<Core, W>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_PRUNE_AND_FILL_KERNEL_H_
