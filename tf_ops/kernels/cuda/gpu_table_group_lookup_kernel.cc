#include <algorithm>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group/table_group_lookup.cu.h"
#include "tf_ops/kernels/cuda/gpu_group.h"
#include "tf_ops/kernels/cuda/gpu_group_lookup_grad.h"
#include "tf_ops/kernels/cuda/gpu_table_resource.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/sparse_inputs.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Outputs as TableGroupLookupOp.
template <typename T>
class GpuTableGroupLookupOp final : public tensorflow::OpKernel {
 public:
  using V = CoreType<T>;

  explicit GpuTableGroupLookupOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadGroupAttrs(ctx, &attrs_));
    FE_REQUIRES_OK(ctx, ReadNumOutputs(ctx, attrs_, &num_outputs_));
    std::vector<bool> inserts;
    FE_REQUIRES_OK(ctx, ReadInserts(ctx, &inserts));
    insert_ = inserts[0];
    const bool is_uniform = std::count(inserts.begin(), inserts.end(), !insert_) == 0;
    OP_REQUIRES(ctx, is_uniform,
                absl::UnimplementedError(
                    "are_inserted must be the same for all tables in a GPU's memory that one "
                    "lookup reads; look up tables that are trained and tables that are not apart"));
  }

  // All that can fail comes before a table is changed, but for memory that a launch needs.
  void Compute(OpKernelContext* ctx) override {
    GpuTables tables;
    OP_REQUIRES_OK(ctx, tables.LookUp(ctx, "resources"));
    GpuGroup<T> gpu(ctx);
    GroupInput<T> group;
    int64_t step = 0;
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, ctx->num_inputs() - 1, "step", &step));
    FE_REQUIRES_OK(ctx, ReadGroup<T>(ctx, attrs_, gpu.weight_reader(), &group));
    FE_REQUIRES_OK(ctx, SetKeyTables(tables, &group));
    std::vector<Span<int32_t>> positions;
    OP_REQUIRES_OK(ctx, AllocatePositions(ctx, tables, group, &positions));

    const std::vector<const GpuTableResource*> resources = tables.resources();
    std::vector<int64_t> steps;
    for (const GpuTableResource* table : resources) steps.push_back(table->StepOr(step));
    GpuTableGroupInput<V> in;
    in.keys = {group.span(), AsSpan(attrs_.table_of_column), AsSpan(std::as_const(positions)),
               static_cast<int64_t>(tables.size())};
    in.tables = tables.tables();
    in.insert = insert_;
    in.steps = AsSpan(steps);
    GpuTableGroupPlan plan;
    FE_REQUIRES_OK(ctx, InTables(AsSpan(resources), PlanTableGroupLookup(gpu.exec(), in, &plan)));
    FE_REQUIRES_OK(ctx, CheckNoneRefused(plan.training.insert.num_refused));

    TableOutputs out;
    OP_REQUIRES_OK(ctx, AllocateTableOutputs(ctx, tables, plan, &out));
    std::vector<CombinedOut<V>> combined;
    OP_REQUIRES_OK(ctx, AllocateCombined(ctx, group, num_outputs_, &combined));
    DeviceBuffer<int64_t> handles;
    FE_REQUIRES_OK(ctx, handles.Allocate(gpu.exec(), plan.num_keys()));
    FE_REQUIRES_OK(ctx, RunTableGroupLookup<V>(gpu.exec(), in, plan,
                                               {handles.span(), AsSpan(std::as_const(out.rows)),
                                                AsSpan(std::as_const(combined))}));
    FE_REQUIRES_OK(
        ctx, CopyKeysOfTables(gpu.exec(), plan, handles.span(), AsSpan(std::as_const(out.keys)),
                              AsSpan(std::as_const(out.handles))));
    FE_REQUIRES_OK(ctx, CountLookup(gpu.exec(), AsSpan(resources), AsSpan(plan.keys.ends),
                                    handles.span(), insert_, plan.training.insert.num_evicted));
  }

 private:
  // Of each table, in device memory.
  struct TableOutputs {
    std::vector<int64_t*> keys, handles;
    std::vector<V*> rows;
  };

  Status SetKeyTables(const GpuTables& tables, GroupInput<T>* in) const {
    for (size_t t = 0; t < tables.size(); ++t) {
      FE_RETURN_IF_ERROR(CheckValueType("dtype", tensorflow::DataTypeToEnum<T>::value,
                                        tables[t].layout().value_type));
    }
    for (size_t c = 0; c < in->columns.size(); ++c) {
      in->columns[c].dim = tables[static_cast<size_t>(attrs_.table_of_column[c])].layout().dim;
      in->columns[c].ids_are_keys = true;
    }
    return Status();
  }

  absl::Status AllocatePositions(OpKernelContext* ctx, const GpuTables& tables,
                                 const GroupInput<T>& in,
                                 std::vector<Span<int32_t>>* positions) const {
    const int first = num_outputs_ + 3 * static_cast<int>(tables.size());
    for (int c = 0; c < static_cast<int>(in.columns.size()); ++c) {
      Tensor* output = nullptr;
      const int64_t nnz = in.columns[static_cast<size_t>(c)].num_pairs();
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, first + c, {nnz}, &output));
      positions->push_back(OutputSpan<int32_t>(output));
    }
    return absl::OkStatus();
  }

  absl::Status AllocateTableOutputs(OpKernelContext* ctx, const GpuTables& tables,
                                    const GpuTableGroupPlan& plan, TableOutputs* out) const {
    const int num_tables = static_cast<int>(tables.size());
    for (int t = 0; t < num_tables; ++t) {
      const int64_t n = plan.num_keys(static_cast<size_t>(t));
      const int64_t dim = tables[static_cast<size_t>(t)].layout().dim;
      Tensor *keys = nullptr, *handles = nullptr, *rows = nullptr;
      const int first = num_outputs_ + t;
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, first, {n}, &keys));
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, first + num_tables, {n}, &handles));
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, first + 2 * num_tables, {n, dim}, &rows));
      out->keys.push_back(OutputSpan<int64_t>(keys).data);
      out->handles.push_back(OutputSpan<int64_t>(handles).data);
      out->rows.push_back(OutputSpan<T>(rows).data);
    }
    const std::vector<int32_t>& defaults = plan.keys.default_positions;
    Tensor* default_positions = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, ctx->num_outputs() - 1,
                                      {static_cast<int64_t>(defaults.size())}, &default_positions));
    std::copy(defaults.begin(), defaults.end(), OutputSpan<int32_t>(default_positions).begin());
    return absl::OkStatus();
  }

  GroupAttrs attrs_;
  int num_outputs_ = 0;
  bool insert_ = false;
};

#define FE_REGISTER(T)                                                  \
  REGISTER_KERNEL_BUILDER(FE_ON_GPU("EmbeddingVariableGroupLookup")     \
                              .HostMemory("resources")                  \
                              .HostMemory("sp_dense_shapes")            \
                              .HostMemory("step")                       \
                              .HostMemory("default_positions")          \
                              .TypeConstraint<T>("dtype"),              \
                          GpuTableGroupLookupOp<T>);                    \
  REGISTER_KERNEL_BUILDER(FE_ON_GPU("EmbeddingVariableGroupLookupGrad") \
                              .HostMemory("sp_dense_shapes")            \
                              .HostMemory("default_positions")          \
                              .TypeConstraint<T>("T"),                  \
                          TableGroupLookupGradOp<GpuGroupLookupGrad<T>, T>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
