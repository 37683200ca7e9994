// The ops of the gradient of a grouped lookup's weights for any device.
//
// Core is what the op has on its device, as CpuGroup, with Run of the stage, which checks, too.

#ifndef FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_WEIGHTS_GRAD_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_WEIGHTS_GRAD_KERNEL_H_

#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group/group_lookup_weights_grad.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

// The gradient of a column's weights, of their type.
struct WeightsOutput {
  size_t column = 0;
  tensorflow::Tensor* tensor = nullptr;
};

template <typename Core, typename T, bool kAreVariables>
class GroupLookupWeightsGradOp final : public GroupOp<Core, T, kAreVariables> {
 public:
  using GroupOp<Core, T, kAreVariables>::GroupOp;

 private:
  void ComputeOn(tensorflow::OpKernelContext* ctx, Core* core, const GroupTables&,
                 const GroupInput<T>& in) override {
    std::vector<CombinedGrad<CoreType<T>>> grads;
    FE_REQUIRES_OK(ctx, ReadCombinedGrads(ctx, in, &grads));
    std::vector<WeightsOutput> outputs;
    for (const int64_t column : this->attrs().weighted_columns) {
      const size_t c = static_cast<size_t>(column);
      const int index = static_cast<int>(outputs.size());
      outputs.push_back({c, nullptr});
      OP_REQUIRES_OK(
          ctx, AllocateOutput(ctx, index, {in.columns[c].num_pairs()}, &outputs.back().tensor));
    }
    FE_REQUIRES_OK(ctx, core->Run(in.span(), AsSpan(grads), outputs));
  }
};

// Handles and shapes are on the host.
#define FE_REGISTER_GROUP_LOOKUP_WEIGHTS_GRAD(device, Core, T)                 \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingGroupLookupWeightsGrad")         \
                              .Device(device)                                  \
                              .HostMemory("sp_dense_shapes")                   \
                              .TypeConstraint<T>("T"),                         \
                          GroupLookupWeightsGradOp<Core<T>, T, false>);        \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceGroupLookupWeightsGrad") \
                              .Device(device)                                  \
                              .HostMemory("resources")                         \
                              .HostMemory("sp_dense_shapes")                   \
                              .TypeConstraint<T>("dtype"),                     \
                          GroupLookupWeightsGradOp<Core<T>, T, true>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_WEIGHTS_GRAD_KERNEL_H_
