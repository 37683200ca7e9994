#include "tf_ops/kernels/group_lookup_grad_kernel.h"

#include "tf_ops/core/lookup/group/table_group_lookup.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename T>
class CpuGroupLookupGrad : public CpuGroup<T> {
 public:
  using CpuGroup<T>::CpuGroup;
  using V = CoreType<T>;

  Status Plan(const GroupGradInput<V>& in) { return PlanGroupLookupGrad(this->exec(), in, &plan_); }
  int64_t num_unique(int t) const { return plan_.tables[static_cast<size_t>(t)].unique.num_unique; }
  Status Run(Span<const TableGrad<V>> grads) {
    RunGroupLookupGrad<V>(this->exec(), &plan_, grads);
    return Status();
  }

 private:
  GroupGradPlan<V> plan_;
};

// Of rows that were found by key: outputs their gradients.
template <typename T>
class TableGroupLookupGradOp final : public GroupOp<CpuGroupLookupGrad<T>, T, false> {
 public:
  using GroupOp<CpuGroupLookupGrad<T>, T, false>::GroupOp;

 private:
  using V = CoreType<T>;

  void ComputeOn(OpKernelContext* ctx, CpuGroupLookupGrad<T>* core, const GroupTables& tables,
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
      Tensor* rows = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, t, {num_keys, tables.dim(t)}, &rows));
      grads[static_cast<size_t>(t)].rows_grad = OutputSpan<T>(rows).data;
    }
    FE_REQUIRES_OK(ctx, core->Run({grads.data(), tables.size()}));
  }

  static Status SetDefaults(const Tensor& default_positions, std::vector<GroupColumn<V>>* columns) {
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

#define FE_REGISTER(T)                                                         \
  FE_REGISTER_GROUP_LOOKUP_GRAD(tensorflow::DEVICE_CPU, CpuGroupLookupGrad, T) \
  REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableGroupLookupGrad")             \
                              .Device(tensorflow::DEVICE_CPU)                  \
                              .TypeConstraint<T>("T"),                         \
                          TableGroupLookupGradOp<T>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
