#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group/admit.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class AdmitOp final : public tensorflow::OpKernel {
 public:
  explicit AdmitOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    insert_ = GetAttr<bool>(ctx, "insert");
    prune_ = GetAttr<bool>(ctx, "prune");
    table_of_column_ = GetAttr<std::vector<int64_t>>(ctx, "table_of_column");
    FE_REQUIRES_OK(ctx, CheckTables(GetAttr<int64_t>(ctx, "num_columns"),
                                    GetAttr<int64_t>(ctx, "num_tables"), NumFirstValues(ctx)));
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<TableResourcePtr> resources;
    OP_REQUIRES_OK(ctx, LookupTables(ctx, "resources", &resources));
    std::vector<AdmitTable> tables(resources.size());
    FE_REQUIRES_OK(ctx, ReadTables(ctx, resources, &tables));
    std::vector<AdmitColumn> columns;
    FE_REQUIRES_OK(ctx, ReadColumns(ctx, tables, &columns));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, &columns));
    FE_REQUIRES_OK(ctx, AdmitKeys(TfExec(ctx), {AsSpan(columns), AsSpan(table_of_column_),
                                                AsSpan(tables), prune_}));
    for (const AdmitTable& table : tables) WarnOfRefused(name(), *table.table, table.num_refused);
  }

 private:
  static int64_t NumFirstValues(OpKernelConstruction* ctx) {
    return static_cast<int64_t>(GetAttr<std::vector<tensorflow::DataType>>(ctx, "Tvalues").size());
  }

  Status CheckTables(int64_t num_columns, int64_t num_tables, int64_t num_first_values) const {
    const auto num_entries = static_cast<int64_t>(table_of_column_.size());
    if (num_entries != num_columns) {
      return InvalidArgument("table_of_column must have an entry for each of the ", num_columns,
                             " columns, got ", num_entries);
    }
    if (num_first_values != 0 && num_first_values != num_columns) {
      return InvalidArgument("first_values must be given for none or each of the ", num_columns,
                             " columns, got ", num_first_values);
    }
    std::vector<bool> has_column(static_cast<size_t>(num_tables));
    for (const int64_t t : table_of_column_) {
      if (t < 0 || t >= num_tables) {
        return InvalidArgument("table_of_column must be in [0, ", num_tables, "), got ", t);
      }
      has_column[static_cast<size_t>(t)] = true;
    }
    for (size_t t = 0; t < has_column.size(); ++t) {
      if (!has_column[t]) return InvalidArgument("table ", t, " must have a column, but has none");
    }
    return Status();
  }

  Status ReadTables(OpKernelContext* ctx, const std::vector<TableResourcePtr>& resources,
                    std::vector<AdmitTable>* tables) const {
    const Tensor& minima = ctx->input(ctx->num_inputs() - 2);
    FE_RETURN_IF_ERROR(CheckVector("min_frequencies", minima));
    const Span<const int64_t> min_frequencies = InputSpan<int64_t>(minima);
    if (!min_frequencies.empty() && min_frequencies.size != AsSpan(resources).size) {
      return InvalidArgument("min_frequencies must be empty or have an entry for each of the ",
                             resources.size(), " tables, got ", min_frequencies.size);
    }
    int64_t step = -1;
    FE_RETURN_IF_ERROR(ReadScalar(ctx, ctx->num_inputs() - 1, "step", &step));
    for (size_t t = 0; t < resources.size(); ++t) {
      AdmitTable& table = (*tables)[t];
      table.table = resources[t]->table();
      table.insert = insert_ && !resources[t]->is_frozen();
      table.step = step;
      if (!min_frequencies.empty()) table.min_frequency = min_frequencies[static_cast<int64_t>(t)];
    }
    return Status();
  }

  Status ReadColumns(OpKernelContext* ctx, const std::vector<AdmitTable>& tables,
                     std::vector<AdmitColumn>* columns) const {
    OpInputList keys, first_values;
    FE_RETURN_IF_ERROR(InputList(ctx, "keys", &keys));
    FE_RETURN_IF_ERROR(InputList(ctx, "first_values", &first_values));
    for (int c = 0; c < keys.size(); ++c) {
      FE_RETURN_IF_ERROR(CheckVector("keys", keys[c]));
      AdmitColumn column{};
      column.keys = InputSpan<int64_t>(keys[c]);
      if (first_values.size() > 0) {
        const auto t = static_cast<size_t>(table_of_column_[static_cast<size_t>(c)]);
        FE_RETURN_IF_ERROR(CheckValues("first_values", first_values[c], column.keys.size,
                                       tables[t].table->config().layout));
        column.first_values = static_cast<const char*>(first_values[c].data());
      }
      columns->push_back(column);
    }
    return Status();
  }

  absl::Status AllocateOutputs(OpKernelContext* ctx, std::vector<AdmitColumn>* columns) const {
    const int num_columns = static_cast<int>(columns->size());
    for (int c = 0; c < num_columns; ++c) {
      AdmitColumn& column = (*columns)[static_cast<size_t>(c)];
      Tensor *is_admitted = nullptr, *frequencies = nullptr;
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, c, {column.keys.size}, &is_admitted));
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, num_columns + c, {column.keys.size}, &frequencies));
      column.is_admitted = OutputSpan<bool>(is_admitted);
      column.frequencies = OutputSpan<int64_t>(frequencies);
    }
    return absl::OkStatus();
  }

  bool insert_ = false;
  bool prune_ = true;
  std::vector<int64_t> table_of_column_;
};

REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableAdmit").Device(tensorflow::DEVICE_CPU), AdmitOp);

}  // namespace
}  // namespace fused_embedding
