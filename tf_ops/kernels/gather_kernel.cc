#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tf_ops/core/lookup/gather.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Reads rows of `params` [num_rows, ...] into output 0, [n, dim].
template <typename Id>
void GatherRows(OpKernelContext* ctx, const Tensor& params) {
  const Tensor& ids = ctx->input(1);
  FE_REQUIRES_OK(ctx, CheckVector("ids", ids));
  OP_REQUIRES(ctx, params.dims() >= 1,
              ToTfStatus(InvalidArgument("params must be a table [num_rows, ...], got shape ",
                                         params.shape().DebugString())));
  int64_t dim = 1;
  for (int i = 1; i < params.dims(); ++i) dim *= params.dim_size(i);
  Tensor* rows = nullptr;
  OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {ids.NumElements(), dim}, &rows));
  const TableView table{static_cast<const char*>(params.data()), params.dim_size(0),
                        dim * DataTypeSize(params.dtype())};
  FE_REQUIRES_OK(ctx,
                 Gather(TfExec(ctx), table, InputSpan<Id>(ids), static_cast<char*>(rows->data())));
}

template <typename Id>
class GatherOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override { GatherRows<Id>(ctx, ctx->input(0)); }
};

template <typename Id>
class ResourceGatherOp : public tensorflow::OpKernel {
 public:
  explicit ResourceGatherOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    dtype_ = GetAttr<tensorflow::DataType>(ctx, "dtype");
  }

  void Compute(OpKernelContext* ctx) override {
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    OP_REQUIRES_OK(ctx, LookupResource(ctx, HandleFromInput(ctx, 0), &variable));
    // The lock is held while reading, rather than a reference to the tensor: an update that finds a
    // second reference copies the whole table.
    tensorflow::tf_shared_lock lock(*variable->mu());
    const Tensor& params = *variable->tensor();
    OP_REQUIRES(ctx, params.dtype() == dtype_,
                ToTfStatus(InvalidArgument("the variable holds ",
                                           tensorflow::DataTypeString(params.dtype()),
                                           ", but dtype is ", tensorflow::DataTypeString(dtype_),
                                           "; initialise the variable first, or pass its dtype")));
    GatherRows<Id>(ctx, params);
  }

 private:
  tensorflow::DataType dtype_;
};

#define FE_REGISTER(Id)                                                                      \
  REGISTER_KERNEL_BUILDER(                                                                   \
      Name("FusedEmbeddingGather").Device(tensorflow::DEVICE_CPU).TypeConstraint<Id>("Tid"), \
      GatherOp<Id>);                                                                         \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceGather")                               \
                              .Device(tensorflow::DEVICE_CPU)                                \
                              .TypeConstraint<Id>("Tid"),                                    \
                          ResourceGatherOp<Id>);
FE_REGISTER(int32_t)
FE_REGISTER(int64_t)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
