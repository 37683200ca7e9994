// The gradient ops of a grouped lookup for any device.
//
// Core is what the op has on its device, as CpuGroup, with Plan and Run of the stage.

#ifndef FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_GRAD_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_GROUP_LOOKUP_GRAD_KERNEL_H_

#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group/group_keys.h"
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

// Of rows that were found by key: outputs their gradients.
template <typename Core, typename T>
class TableGroupLookupGradOp final : public GroupOp<Core, T, false> {
 public:
  using GroupOp<Core, T, false>::GroupOp;

 private:
  using V = CoreType<T>;

  void ComputeOn(tensorflow::OpKernelContext* ctx, Core* core, const GroupTables& tables,
                 const GroupInput<T>& in) override {
    std::vector<CombinedGrad<V>> combined_grads;
    FE_REQUIRES_OK(ctx, ReadCombinedGrads(ctx, in, &combined_grads));
    std::vector<GroupColumn<V>> columns = in.columns;
    FE_REQUIRES_OK(ctx, SetDefaults(ctx->input(ctx->num_inputs() - 1), &columns));
    const int64_t num_columns = this->attrs().num_columns();
    GroupGradInput<V> grad_in;
    grad_in.columns = {columns.data(), num_columns};
    grad_in.combined_grads = {combined_grads.data(), num_columns};
    grad_in.table_of_column = {this->attrs().table_of_column.data(), num_columns};
    grad_in.num_tables = tables.size();
    grad_in.ids_are_positions = true;
    FE_REQUIRES_OK(ctx, core->Plan(grad_in));

    std::vector<TableGrad<V>> grads(static_cast<size_t>(tables.size()));
    for (int t = 0; t < static_cast<int>(tables.size()); ++t) {
      const int64_t num_keys = core->num_unique(t);
      tensorflow::Tensor* rows = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, t, {num_keys, tables.dim(t)}, &rows));
      grads[static_cast<size_t>(t)].rows_grad = OutputSpan<T>(rows).data;
    }
    FE_REQUIRES_OK(ctx, core->Run({grads.data(), tables.size()}));
  }

  static Status SetDefaults(const tensorflow::Tensor& default_positions,
                            std::vector<GroupColumn<V>>* columns) {
    const Span<const int32_t> positions = InputSpan<int32_t>(default_positions);
    if (default_positions.dims() != 1 || positions.size != static_cast<int64_t>(columns->size())) {
      return InvalidArgument("default_positions must have one element for each of the ",
                             columns->size(), " columns, got shape ",
                             default_positions.shape().DebugString());
    }
    for (size_t c = 0; c < columns->size(); ++c) {
      SetDefaultPosition(DefaultPosition{positions[static_cast<int64_t>(c)]}, &(*columns)[c]);
    }
    return Status();
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
