// The ops of a grouped lookup for any device.
//
// Core is what the op has on its device, as CpuGroup, with Plan and Run of the stage.

#ifndef FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_KERNEL_H_

#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group/group_lookup.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <typename Core, typename T, bool kAreVariables>
class GroupLookupOp final : public GroupOp<Core, T, kAreVariables> {
 public:
  explicit GroupLookupOp(tensorflow::OpKernelConstruction* ctx)
      : GroupOp<Core, T, kAreVariables>(ctx) {
    int num_outputs = 0;
    FE_REQUIRES_OK(ctx, ReadNumOutputs(ctx, this->attrs(), &num_outputs));
  }

 private:
  void ComputeOn(tensorflow::OpKernelContext* ctx, Core* core, const GroupTables&,
                 const GroupInput<T>& in) override {
    FE_REQUIRES_OK(ctx, core->Plan(in.span()));
    std::vector<CombinedOut<CoreType<T>>> combined;
    OP_REQUIRES_OK(ctx, AllocateCombined(ctx, in, ctx->num_outputs(), &combined));
    FE_REQUIRES_OK(ctx, core->Run(in.span(), AsSpan(std::as_const(combined))));
  }
};

// Handles and shapes are on the host.
#define FE_REGISTER_GROUP_LOOKUP(device, Core, T)                   \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingGroupLookup")         \
                              .Device(device)                       \
                              .HostMemory("sp_dense_shapes")        \
                              .TypeConstraint<T>("T"),              \
                          GroupLookupOp<Core<T>, T, false>);        \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceGroupLookup") \
                              .Device(device)                       \
                              .HostMemory("resources")              \
                              .HostMemory("sp_dense_shapes")        \
                              .TypeConstraint<T>("dtype"),          \
                          GroupLookupOp<Core<T>, T, true>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_KERNEL_H_
