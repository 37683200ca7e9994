#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group_lookup.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

template <typename T, bool kAreVariables>
class GroupLookupOp final : public GroupOp<T, kAreVariables> {
 public:
  explicit GroupLookupOp(OpKernelConstruction* ctx) : GroupOp<T, kAreVariables>(ctx) {
    int num_outputs = 0;
    FE_REQUIRES_OK(ctx, ReadNumOutputs(ctx, this->attrs(), &num_outputs));
  }

 private:
  void ComputeOn(OpKernelContext* ctx, const GroupTables&, const GroupInput<T>& in) override {
    using V = CoreType<T>;
    const TfExec exec(ctx);
    GroupPlan<V> plan;
    FE_REQUIRES_OK(ctx, PlanGroupLookup(exec, in.span(), &plan));

    std::vector<CombinedOut<V>> combined;
    OP_REQUIRES_OK(ctx, AllocateCombined(ctx, in, ctx->num_outputs(), &combined));
    RunGroupLookup(exec, in.span(), &plan, AsSpan(std::as_const(combined)));
  }
};

#define FE_REGISTER(T)                                                                         \
  REGISTER_KERNEL_BUILDER(                                                                     \
      Name("FusedEmbeddingGroupLookup").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
      GroupLookupOp<T, false>);                                                                \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceGroupLookup")                            \
                              .Device(tensorflow::DEVICE_CPU)                                  \
                              .TypeConstraint<T>("dtype"),                                     \
                          GroupLookupOp<T, true>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
