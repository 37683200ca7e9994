#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group_lookup_grad.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Outputs unique_ids of each table, then rows_grad of each.
template <typename T, bool kAreVariables>
class GroupLookupGradOp final : public GroupOp<T, kAreVariables> {
 public:
  using GroupOp<T, kAreVariables>::GroupOp;

 private:
  void ComputeOn(OpKernelContext* ctx, const GroupTables& tables,
                 const GroupInput<T>& in) override {
    using V = CoreType<T>;
    std::vector<CombinedGrad<V>> grads;
    FE_REQUIRES_OK(ctx, ReadCombinedGrads(ctx, in, &grads));
    const TfExec exec(ctx);
    const GroupAttrs& attrs = this->attrs();
    const Span<const int64_t> table_of_column = {attrs.table_of_column.data(), attrs.num_columns()};
    GroupGradPlan<V> plan;
    FE_REQUIRES_OK(ctx,
                   PlanGroupLookupGrad<V>(
                       exec, {in.span(), AsSpan(grads), table_of_column, tables.size()}, &plan));

    std::vector<TableGrad<V>> outputs(static_cast<size_t>(tables.size()));
    for (int t = 0; t < static_cast<int>(tables.size()); ++t) {
      const int64_t num_unique = plan.tables[static_cast<size_t>(t)].unique.num_unique;
      const int rows_index = static_cast<int>(tables.size()) + t;
      Tensor *ids = nullptr, *rows = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, t, {num_unique}, &ids));
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, rows_index, {num_unique, tables.dim(t)}, &rows));
      outputs[static_cast<size_t>(t)] = {OutputSpan<int64_t>(ids).data, OutputSpan<T>(rows).data};
    }
    RunGroupLookupGrad<V>(exec, &plan, {outputs.data(), tables.size()});
  }
};

// Of rows that were found by key: outputs their gradients.
template <typename T>
class TableGroupLookupGradOp final : public GroupOp<T, false> {
 public:
  using GroupOp<T, false>::GroupOp;

 private:
  using V = CoreType<T>;

  void ComputeOn(OpKernelContext* ctx, const GroupTables& tables,
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
    const TfExec exec(ctx);
    GroupGradPlan<V> plan;
    FE_REQUIRES_OK(ctx, PlanGroupLookupGrad(exec, grad_in, &plan));

    std::vector<TableGrad<V>> grads(static_cast<size_t>(tables.size()));
    for (int t = 0; t < static_cast<int>(tables.size()); ++t) {
      const int64_t num_keys = plan.tables[static_cast<size_t>(t)].unique.num_unique;
      Tensor* rows = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, t, {num_keys, tables.dim(t)}, &rows));
      grads[static_cast<size_t>(t)].rows_grad = OutputSpan<T>(rows).data;
    }
    RunGroupLookupGrad<V>(exec, &plan, {grads.data(), tables.size()});
  }

  static Status SetDefaults(const Tensor& default_positions, std::vector<GroupColumn<V>>* columns) {
    const Span<const int32_t> positions = InputSpan<int32_t>(default_positions);
    if (default_positions.dims() != 1 || positions.size != static_cast<int64_t>(columns->size())) {
      return InvalidArgument("default_positions must have one element for each of the ",
                             columns->size(), " columns, got shape ",
                             default_positions.shape().DebugString());
    }
    for (size_t c = 0; c < columns->size(); ++c) {
      GroupColumn<V>& column = (*columns)[c];
      column.default_id = positions[static_cast<int64_t>(c)];
      column.fill = column.default_id >= 0;
    }
    return Status();
  }
};

#define FE_REGISTER(T)                                                                             \
  REGISTER_KERNEL_BUILDER(                                                                         \
      Name("FusedEmbeddingGroupLookupGrad").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
      GroupLookupGradOp<T, false>);                                                                \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceGroupLookupGrad")                            \
                              .Device(tensorflow::DEVICE_CPU)                                      \
                              .TypeConstraint<T>("dtype"),                                         \
                          GroupLookupGradOp<T, true>);                                             \
  REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableGroupLookupGrad")                                 \
                              .Device(tensorflow::DEVICE_CPU)                                      \
                              .TypeConstraint<T>("T"),                                             \
                          TableGroupLookupGradOp<T>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
