#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group/group_lookup.h"
#include "tf_ops/core/lookup/group/group_lookup_grad.h"
#include "tf_ops/core/lookup/remote/remote_lookup.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/remote_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// What a lookup and its gradient have in common: columns of positions in rows that servers sent,
// which are read before `ComputeOn`.
template <typename T>
class RemoteLookupBase : public tensorflow::OpKernel {
 public:
  using V = CoreType<T>;

  explicit RemoteLookupBase(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadGroupAttrs(ctx, &attrs_));
    FE_REQUIRES_OK(ctx, ReadNumOutputs(ctx, attrs_, &num_outputs_));
    FE_REQUIRES_OK(ctx, ReadPackedLayout(ctx, &layout_));
  }

  void Compute(OpKernelContext* ctx) final {
    Columns columns(ctx);
    FE_REQUIRES_OK(ctx, ReadColumns(ctx, &columns));
    ComputeOn(ctx, &columns);
  }

 protected:
  struct Columns {
    explicit Columns(OpKernelContext* ctx) : group(ctx) {}

    CpuGroup<T> group;
    GroupInput<T> in;
    PackedInput<T> packed;
    ContiguousTables<V> tables;
  };

  const GroupAttrs& attrs() const { return attrs_; }
  const PackedLayout& layout() const { return layout_; }
  int num_combined() const { return num_outputs_; }

 private:
  virtual void ComputeOn(OpKernelContext* ctx, Columns* columns) = 0;

  Status ReadColumns(OpKernelContext* ctx, Columns* columns) const {
    FE_RETURN_IF_ERROR(ReadPackedRows<T>(ctx, layout_, &columns->packed));
    GroupInput<T>& in = columns->in;
    FE_RETURN_IF_ERROR(ReadGroup<T>(ctx, attrs_, columns->group.weight_reader(), &in));
    const PackedPlaces& places = columns->packed.places;
    FE_RETURN_IF_ERROR(
        columns->tables.Gather(places, AsSpan(std::as_const(columns->packed.servers))));
    const Tensor& default_positions = ctx->input(ctx->num_inputs() - 1);
    FE_RETURN_IF_ERROR(CheckVector("default_positions", default_positions));
    return SetRemoteTables<V>(layout_, places, columns->tables,
                              {AsSpan(in.columns), AsSpan(attrs_.table_of_column),
                               InputSpan<int32_t>(default_positions)});
  }

  GroupAttrs attrs_;
  PackedLayout layout_;
  int num_outputs_ = 0;
};

template <typename T>
class RemoteLookupOp final : public RemoteLookupBase<T> {
 public:
  using RemoteLookupBase<T>::RemoteLookupBase;

 private:
  using V = CoreType<T>;

  void ComputeOn(OpKernelContext* ctx, typename RemoteLookupBase<T>::Columns* columns) override {
    const TfExec& exec = columns->group.exec();
    GroupPlan<V> plan;
    FE_REQUIRES_OK(ctx, PlanGroupLookup<V>(exec, columns->in.span(), &plan));
    std::vector<CombinedOut<V>> combined;
    OP_REQUIRES_OK(ctx, AllocateCombined(ctx, columns->in, this->num_combined(), &combined));
    FE_REQUIRES_OK(
        ctx, RunGroupLookup<V>(exec, columns->in.span(), plan, AsSpan(std::as_const(combined))));
  }
};

// Outputs the gradients of what each server sent.
template <typename T>
class RemoteLookupGradOp final : public RemoteLookupBase<T> {
 public:
  using RemoteLookupBase<T>::RemoteLookupBase;

 private:
  using V = CoreType<T>;

  void ComputeOn(OpKernelContext* ctx, typename RemoteLookupBase<T>::Columns* columns) override {
    std::vector<CombinedGrad<V>> combined_grads;
    FE_REQUIRES_OK(ctx, ReadCombinedGrads(ctx, columns->in, &combined_grads));
    GroupGradInput<V> in;
    in.columns = columns->in.span();
    in.combined_grads = AsSpan(std::as_const(combined_grads));
    in.table_of_column = AsSpan(this->attrs().table_of_column);
    in.num_tables = this->layout().num_tables();
    in.ids_are_positions = true;
    const TfExec& exec = columns->group.exec();
    GroupGradPlan<V> plan;
    FE_REQUIRES_OK(ctx, PlanGroupLookupGrad<V>(exec, in, &plan));
    const PackedPlaces& places = columns->packed.places;
    std::vector<V*> servers;
    for (size_t s = 0; s < places.server_sizes.size(); ++s) {
      Tensor* rows = nullptr;
      OP_REQUIRES_OK(ctx,
                     AllocateOutput(ctx, static_cast<int>(s), {places.server_sizes[s]}, &rows));
      servers.push_back(OutputSpan<T>(rows).data);
    }
    FE_REQUIRES_OK(ctx, Run(exec, places, AsSpan(std::as_const(servers)), &plan));
  }

  // A whole table has its gradient written where it travels, the others are copied there.
  static Status Run(const CpuExec& exec, const PackedPlaces& places, Span<V* const> servers,
                    GroupGradPlan<V>* plan) {
    std::vector<Buffer<V>> copies(places.tables.size());
    std::vector<TableGrad<V>> grads(places.tables.size());
    for (size_t t = 0; t < places.tables.size(); ++t) {
      const PackedPlaces::Table& table = places.tables[t];
      if (!table.is_whole) FE_RETURN_IF_ERROR(copies[t].Allocate(table.num_values));
      grads[t].rows_grad =
          table.is_whole ? WholeTable<V>(places, table, servers) : copies[t].data();
    }
    RunGroupLookupGrad<V>(exec, plan, AsSpan(std::as_const(grads)));
    for (size_t t = 0; t < places.tables.size(); ++t) {
      if (places.tables[t].is_whole) continue;
      PackTable<V>(places, static_cast<int64_t>(t), copies[t].data(), servers);
    }
    return Status();
  }
};

#define FE_REGISTER(T)                                           \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingRemoteLookup")     \
                              .Device(tensorflow::DEVICE_CPU)    \
                              .TypeConstraint<T>("dtype"),       \
                          RemoteLookupOp<T>);                    \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingRemoteLookupGrad") \
                              .Device(tensorflow::DEVICE_CPU)    \
                              .TypeConstraint<T>("dtype"),       \
                          RemoteLookupGradOp<T>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
