#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group_lookup_weights_grad.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"
#include "tf_ops/kernels/weight_values.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename T, bool kAreVariables>
class GroupLookupWeightsGradOp : public tensorflow::OpKernel {
 public:
  explicit GroupLookupWeightsGradOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadGroupAttrs(ctx, &attrs_));
  }

  void Compute(OpKernelContext* ctx) override {
    using V = CoreType<T>;
    GroupTables tables;
    OP_REQUIRES_OK(
        ctx, ReadGroupTables(ctx, tensorflow::DataTypeToEnum<T>::value, kAreVariables, &tables));
    GroupInput<T> in;
    FE_REQUIRES_OK(ctx, ReadGroup(ctx, attrs_, tables, &in));
    std::vector<CombinedGrad<V>> grads;
    FE_REQUIRES_OK(ctx, ReadCombinedGrads(ctx, in, &grads));
    const TfExec exec(ctx);
    std::vector<PairOrder> orders;
    FE_REQUIRES_OK(ctx, CheckColumns(exec, in.span(), &orders));
    for (size_t i = 0; i < attrs_.weighted_columns.size(); ++i) {
      const size_t c = static_cast<size_t>(attrs_.weighted_columns[i]);
      Buffer<ComputeType<V>> values;
      FE_REQUIRES_OK(ctx, values.Allocate(in.columns[c].nnz()));
      FE_REQUIRES_OK(ctx, GroupLookupWeightsGrad(exec, in.columns[c], grads[c], values.span()));
      Tensor* output = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, static_cast<int>(i), {in.columns[c].nnz()}, &output));
      StoreWeights<ComputeType<V>>(values.span(), output);
    }
  }

 private:
  GroupAttrs attrs_;
};

#define FE_REGISTER(T)                                                         \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingGroupLookupWeightsGrad")         \
                              .Device(tensorflow::DEVICE_CPU)                  \
                              .TypeConstraint<T>("T"),                         \
                          GroupLookupWeightsGradOp<T, false>);                 \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceGroupLookupWeightsGrad") \
                              .Device(tensorflow::DEVICE_CPU)                  \
                              .TypeConstraint<T>("dtype"),                     \
                          GroupLookupWeightsGradOp<T, true>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
