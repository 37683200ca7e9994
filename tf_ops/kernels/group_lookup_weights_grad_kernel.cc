#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group_lookup_weights_grad.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"
#include "tf_ops/kernels/weight_values.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename T, bool kAreVariables>
class GroupLookupWeightsGradOp final : public GroupOp<CpuGroup<T>, T, kAreVariables> {
 public:
  using GroupOp<CpuGroup<T>, T, kAreVariables>::GroupOp;

 private:
  void ComputeOn(OpKernelContext* ctx, CpuGroup<T>* core, const GroupTables&,
                 const GroupInput<T>& in) override {
    using V = CoreType<T>;
    std::vector<CombinedGrad<V>> grads;
    FE_REQUIRES_OK(ctx, ReadCombinedGrads(ctx, in, &grads));
    const TfExec& exec = core->exec();
    std::vector<PairOrder> orders;
    FE_REQUIRES_OK(ctx, CheckColumns(exec, in.span(), &orders));
    const std::vector<int64_t>& weighted = this->attrs().weighted_columns;
    for (size_t i = 0; i < weighted.size(); ++i) {
      const size_t c = static_cast<size_t>(weighted[i]);
      Buffer<ComputeType<V>> values;
      FE_REQUIRES_OK(ctx, values.Allocate(in.columns[c].nnz()));
      FE_REQUIRES_OK(ctx, GroupLookupWeightsGrad(exec, in.columns[c], grads[c], values.span()));
      Tensor* output = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, static_cast<int>(i), {in.columns[c].nnz()}, &output));
      StoreWeights<ComputeType<V>>(values.span(), output);
    }
  }
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
