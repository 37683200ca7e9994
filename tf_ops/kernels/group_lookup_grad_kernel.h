// The gradient ops of a grouped lookup for any device.
//
// Core is what the op has on its device, as CpuGroup, with Plan and Run of the stage.

#ifndef FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_GRAD_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_GRAD_KERNEL_H_

#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group/group_lookup_grad.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

// Outputs unique_ids of each table, then rows_grad of each.
template <typename Core, typename T, bool kAreVariables>
class GroupLookupGradOp final : public GroupOp<Core, T, kAreVariables> {
 public:
  using GroupOp<Core, T, kAreVariables>::GroupOp;

 private:
  void ComputeOn(tensorflow::OpKernelContext* ctx, Core* core, const GroupTables& tables,
                 const GroupInput<T>& in) override {
    using V = CoreType<T>;
    std::vector<CombinedGrad<V>> grads;
    FE_REQUIRES_OK(ctx, ReadCombinedGrads(ctx, in, &grads));
    const GroupAttrs& attrs = this->attrs();
    const Span<const int64_t> table_of_column = {attrs.table_of_column.data(), attrs.num_columns()};
    FE_REQUIRES_OK(ctx, core->Plan({in.span(), AsSpan(grads), table_of_column, tables.size()}));

    std::vector<TableGrad<V>> outputs(static_cast<size_t>(tables.size()));
    for (int t = 0; t < static_cast<int>(tables.size()); ++t) {
      const int64_t num_unique = core->num_unique(t);
      const int rows_index = static_cast<int>(tables.size()) + t;
      tensorflow::Tensor *ids = nullptr, *rows = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, t, {num_unique}, &ids));
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, rows_index, {num_unique, tables.dim(t)}, &rows));
      outputs[static_cast<size_t>(t)] = {OutputSpan<int64_t>(ids).data, OutputSpan<T>(rows).data};
    }
    FE_REQUIRES_OK(ctx, core->Run({outputs.data(), tables.size()}));
  }
};

// Handles and shapes are on the host.
#define FE_REGISTER_GROUP_LOOKUP_GRAD(device, Core, T)                  \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingGroupLookupGrad")         \
                              .Device(device)                           \
                              .HostMemory("sp_dense_shapes")            \
                              .TypeConstraint<T>("T"),                  \
                          GroupLookupGradOp<Core<T>, T, false>);        \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceGroupLookupGrad") \
                              .Device(device)                           \
                              .HostMemory("resources")                  \
                              .HostMemory("sp_dense_shapes")            \
                              .TypeConstraint<T>("dtype"),              \
                          GroupLookupGradOp<Core<T>, T, true>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_GRAD_KERNEL_H_
