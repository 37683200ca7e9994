// The gather ops for any device: Exec is what core gets it from.

#ifndef FUSED_EMBEDDING_KERNELS_GATHER_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_GATHER_KERNEL_H_

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tf_ops/core/lookup/stages/gather.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

// Reads rows of `params` [num_rows, ...] into output 0, [n, dim].
template <typename Exec, typename Id>
void GatherRows(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& params,
                const ColumnName& column) {
  const tensorflow::Tensor& ids = ctx->input(1);
  FE_REQUIRES_OK(ctx, CheckVector("ids", ids));
  OP_REQUIRES(ctx, params.dims() >= 1,
              ToTfStatus(InvalidArgument("params must be a table [num_rows, ...], got shape ",
                                         params.shape().DebugString())));
  int64_t dim = 1;
  for (int i = 1; i < params.dims(); ++i) dim *= params.dim_size(i);
  tensorflow::Tensor* rows = nullptr;
  OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {ids.NumElements(), dim}, &rows));
  const TableView table{static_cast<const char*>(params.data()), params.dim_size(0),
                        dim * DataTypeSize(params.dtype())};
  FE_REQUIRES_OK(ctx, column.Of(Gather(Exec(ctx), table, InputSpan<Id>(ids),
                                       static_cast<char*>(rows->data()))));
}

template <typename Exec, typename Id>
class GatherOp : public tensorflow::OpKernel {
 public:
  explicit GatherOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), column_(ctx) {}

  void Compute(tensorflow::OpKernelContext* ctx) override {
    GatherRows<Exec, Id>(ctx, ctx->input(0), column_);
  }

 private:
  ColumnName column_;
};

template <typename Exec, typename Id>
class ResourceGatherOp : public tensorflow::OpKernel {
 public:
  explicit ResourceGatherOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), column_(ctx) {
    dtype_ = GetAttr<tensorflow::DataType>(ctx, "dtype");
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    OP_REQUIRES_OK(ctx, LookupResource(ctx, HandleFromInput(ctx, 0), &variable));
    // The lock is held while reading, rather than a reference to the tensor: an update that finds a
    // second reference copies the whole table.
    tensorflow::tf_shared_lock lock(*variable->mu());
    const tensorflow::Tensor& params = *variable->tensor();
    OP_REQUIRES(ctx, params.dtype() == dtype_,
                ToTfStatus(InvalidArgument("the variable holds ",
                                           tensorflow::DataTypeString(params.dtype()),
                                           ", but dtype is ", tensorflow::DataTypeString(dtype_),
                                           "; initialise the variable first, or pass its dtype")));
    UseHugePages(ctx, params);
    GatherRows<Exec, Id>(ctx, params, column_);
  }

 private:
  ColumnName column_;
  tensorflow::DataType dtype_;
};

// The handle is on the host; ids and rows are on the device.
#define FE_REGISTER_GATHER(device, Exec, Id)                                                     \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingGather").Device(device).TypeConstraint<Id>("Tid"), \
                          GatherOp<Exec, Id>);                                                   \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceGather")                                   \
                              .Device(device)                                                    \
                              .HostMemory("resource")                                            \
                              .TypeConstraint<Id>("Tid"),                                        \
                          ResourceGatherOp<Exec, Id>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_GATHER_KERNEL_H_
