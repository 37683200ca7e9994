#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group/group_lookup.h"
#include "tf_ops/core/lookup/group/table_group_lookup.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using Tables = std::vector<TableResourcePtr>;

// What an op has in hand between finding its keys and looking them up.
template <typename T>
struct Lookup {
  explicit Lookup(OpKernelContext* ctx) : group(ctx) {}

  Tables tables;
  int64_t step = -1;
  GroupInput<T> in;
  CpuGroup<T> group;
  std::vector<Span<int32_t>> positions;  // of each column
  GroupKeys keys;
  std::vector<TableLookup> lookups;  // of each table
};

// Outputs combined, then keys, handles and rows of each table, then positions of each column and
// default_positions.
template <typename T>
class TableGroupLookupOp final : public tensorflow::OpKernel {
 public:
  using V = CoreType<T>;

  explicit TableGroupLookupOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadGroupAttrs(ctx, &attrs_));
    FE_REQUIRES_OK(ctx, ReadInserts(ctx, &inserts_));
    FE_REQUIRES_OK(ctx, ReadNumOutputs(ctx, attrs_, &num_outputs_));
  }

  // All that can fail comes before a table is changed, but for what only the tables know.
  void Compute(OpKernelContext* ctx) override {
    Lookup<T> lookup(ctx);
    OP_REQUIRES_OK(ctx, LookupTables(ctx, "resources", &lookup.tables));
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, ctx->num_inputs() - 1, "step", &lookup.step));
    FE_REQUIRES_OK(ctx, ReadGroup<T>(ctx, attrs_, lookup.group.weight_reader(), &lookup.in));
    FE_REQUIRES_OK(ctx, SetKeyTables(lookup.tables, &lookup.in));
    OP_REQUIRES_OK(ctx, FindKeys(ctx, &lookup));
    OP_REQUIRES_OK(ctx, AllocateTableOutputs(ctx, &lookup));
    SetPositions(&lookup);

    const TfExec exec(ctx);
    GroupPlan<V> plan;
    FE_REQUIRES_OK(ctx, PlanGroupLookup(lookup.keys.orders, lookup.in.span(), &plan));
    std::vector<CombinedOut<V>> combined;
    OP_REQUIRES_OK(ctx, AllocateCombined(ctx, lookup.in, num_outputs_, &combined));
    std::vector<TableLookup>& lookups = lookup.lookups;
    FE_REQUIRES_OK(
        ctx, LookUpTables(exec, AsSpan(lookups), [&](const CpuExec& table_exec, int64_t t) {
          for (size_t c = 0; c < combined.size(); ++c) {
            if (attrs_.table_of_column[c] != t) continue;
            FE_RETURN_IF_ERROR(
                RunColumnLookup(table_exec, lookup.in.columns[c], plan.columns[c], combined[c]));
          }
          return Status();
        }));
    Warn(lookups);
  }

 private:
  Status SetKeyTables(const Tables& tables, GroupInput<T>* in) const {
    for (const TableResourcePtr& resource : tables) {
      FE_RETURN_IF_ERROR(CheckValueType("dtype", tensorflow::DataTypeToEnum<T>::value,
                                        resource->table()->config().layout.value_type));
    }
    for (size_t c = 0; c < in->columns.size(); ++c) {
      const size_t t = static_cast<size_t>(attrs_.table_of_column[c]);
      in->columns[c].dim = tables[t]->table()->config().layout.dim;
      in->columns[c].ids_are_keys = true;
    }
    return Status();
  }

  absl::Status FindKeys(OpKernelContext* ctx, Lookup<T>* lookup) const {
    const int first_positions = num_outputs_ + 3 * static_cast<int>(lookup->tables.size());
    const int num_columns = static_cast<int>(attrs_.num_columns());
    for (int c = 0; c < num_columns; ++c) {
      Tensor* positions = nullptr;
      const int64_t nnz = lookup->in.columns[static_cast<size_t>(c)].num_pairs();
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, first_positions + c, {nnz}, &positions));
      lookup->positions.push_back(OutputSpan<int32_t>(positions));
    }
    GroupKeysInput<V> in;
    in.columns = lookup->in.span();
    in.table_of_column = {attrs_.table_of_column.data(), num_columns};
    in.positions = {lookup->positions.data(), num_columns};
    in.num_tables = static_cast<int64_t>(lookup->tables.size());
    TF_RETURN_IF_ERROR(ToTfStatus(FindGroupKeys(TfExec(ctx), in, &lookup->keys)));

    Tensor* default_positions = nullptr;
    TF_RETURN_IF_ERROR(
        AllocateOutput(ctx, first_positions + num_columns, {num_columns}, &default_positions));
    std::copy(lookup->keys.default_positions.begin(), lookup->keys.default_positions.end(),
              OutputSpan<int32_t>(default_positions).begin());
    return absl::OkStatus();
  }

  absl::Status AllocateTableOutputs(OpKernelContext* ctx, Lookup<T>* lookup) const {
    const int num_tables = static_cast<int>(lookup->tables.size());
    for (int t = 0; t < num_tables; ++t) {
      const TableResource& resource = *lookup->tables[static_cast<size_t>(t)];
      const TableKeys& found = lookup->keys.tables[static_cast<size_t>(t)];
      const int64_t n = found.unique.num_unique;
      const int64_t dim = resource.table()->config().layout.dim;
      Tensor *keys = nullptr, *handles = nullptr, *rows = nullptr;
      const int first = num_outputs_ + t;
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, first, {n}, &keys));
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, first + num_tables, {n}, &handles));
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, first + 2 * num_tables, {n, dim}, &rows));
      std::copy_n(found.keys().begin(), n, OutputSpan<int64_t>(keys).begin());
      TableLookup of_table;
      of_table.table = resource.table();
      of_table.insert = inserts_[static_cast<size_t>(t)] && !resource.is_frozen();
      of_table.in = {found.keys(), found.counts.span(), lookup->step};
      of_table.out.values = static_cast<char*>(rows->data());
      of_table.out.handles = OutputSpan<int64_t>(handles).data;
      lookup->lookups.push_back(of_table);
    }
    return absl::OkStatus();
  }

  // From keys in tables to positions in what the tables will give.
  void SetPositions(Lookup<T>* lookup) const {
    for (size_t c = 0; c < lookup->in.columns.size(); ++c) {
      const TableLookup& of_table = lookup->lookups[static_cast<size_t>(attrs_.table_of_column[c])];
      auto& column = lookup->in.columns[c];
      const Span<const int32_t> positions = lookup->positions[c];
      column =
          PositionColumn(column, positions, DefaultPosition{lookup->keys.default_positions[c]},
                         reinterpret_cast<const V*>(of_table.out.values), of_table.in.keys.size);
    }
  }

  void Warn(const std::vector<TableLookup>& lookups) const {
    for (const TableLookup& lookup : lookups) {
      WarnOfRefused(name(), *lookup.table, lookup.out.num_refused);
    }
  }

  GroupAttrs attrs_;
  int num_outputs_ = 0;
  std::vector<bool> inserts_;  // of each table
};

#define FE_REGISTER(T)                                         \
  REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableGroupLookup") \
                              .Device(tensorflow::DEVICE_CPU)  \
                              .TypeConstraint<T>("dtype"),     \
                          TableGroupLookupOp<T>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
