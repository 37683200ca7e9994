#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group/group_lookup.h"
#include "tf_ops/core/lookup/rows/row_formats.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class StoredRowsGroupLookupOp final : public tensorflow::OpKernel {
 public:
  explicit StoredRowsGroupLookupOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    int num_outputs = 0;
    FE_REQUIRES_OK(ctx, ReadGroupAttrs(ctx, &attrs_));
    FE_REQUIRES_OK(ctx, ReadNumOutputs(ctx, attrs_, &num_outputs));
    FE_REQUIRES_OK(ctx, ReadFormats(ctx));
  }

  void Compute(OpKernelContext* ctx) override {
    GroupTables tables;
    OP_REQUIRES_OK(ctx, tables.ReadVariables(ctx, AsSpan(dtypes_)));
    FE_REQUIRES_OK(ctx, CheckWidths(tables));
    CpuGroup<float> cpu(ctx);
    GroupInput<float> in;
    FE_REQUIRES_OK(ctx, ReadGroup<float>(ctx, attrs_, cpu.weight_reader(), &in));
    SetStoredRows(tables, &in);
    GroupPlan<float> plan;
    FE_REQUIRES_OK(ctx, PlanGroupLookup(cpu.exec(), in.span(), &plan));
    std::vector<CombinedOut<float>> combined;
    OP_REQUIRES_OK(ctx, AllocateCombined(ctx, in, ctx->num_outputs(), &combined));
    FE_REQUIRES_OK(ctx,
                   RunGroupLookup(cpu.exec(), in.span(), plan, AsSpan(std::as_const(combined))));
  }

 private:
  Status ReadFormats(OpKernelConstruction* ctx) {
    dims_ = GetAttr<std::vector<int64_t>>(ctx, "dims");
    for (const std::string& name : GetAttr<std::vector<std::string>>(ctx, "formats")) {
      RowFormat format = RowFormat::kInt8;
      FE_RETURN_IF_ERROR(ParseRowFormat(name, &format));
      const bool is_short = format == RowFormat::kBFloat16;
      formats_.push_back(format);
      dtypes_.push_back(is_short ? tensorflow::DT_BFLOAT16 : tensorflow::DT_UINT8);
    }
    const auto num_tables = GetAttr<int64_t>(ctx, "num_tables");
    const auto num_formats = static_cast<int64_t>(formats_.size());
    const auto num_dims = static_cast<int64_t>(dims_.size());
    if (num_formats != num_tables || num_dims != num_tables) {
      return InvalidArgument("formats and dims must have one entry for each of the ", num_tables,
                             " tables, got ", num_formats, " and ", num_dims);
    }
    for (const int64_t dim : dims_) {
      if (dim < 1 || dim > kMaxDim) {
        return InvalidArgument("dims must be from 1 to ", kMaxDim, ", got ", dim);
      }
    }
    return Status();
  }

  Status CheckWidths(const GroupTables& tables) const {
    for (int64_t t = 0; t < tables.size(); ++t) {
      const auto i = static_cast<size_t>(t);
      const Tensor& table = tables[t];
      const int64_t row_bytes = tables.dim(t) * tensorflow::DataTypeSize(table.dtype());
      if (row_bytes == RowBytes(formats_[i], dims_[i])) continue;
      return InvalidArgument("a row of ", dims_[i], " values has ", RowBytes(formats_[i], dims_[i]),
                             " bytes in the format of table ", t, ", got a variable of shape ",
                             table.shape().DebugString());
    }
    return Status();
  }

  void SetStoredRows(const GroupTables& tables, GroupInput<float>* in) const {
    for (size_t c = 0; c < in->columns.size(); ++c) {
      const auto t = attrs_.table_of_column[c];
      auto& column = in->columns[c];
      const char* rows = tables[t].tensor_data().data();
      column.stored = {reinterpret_cast<const uint8_t*>(rows), formats_[static_cast<size_t>(t)]};
      column.table_rows = tables[t].dim_size(0);
      column.dim = dims_[static_cast<size_t>(t)];
    }
  }

  static constexpr int64_t kMaxDim = int64_t{1} << 30;

  GroupAttrs attrs_;
  std::vector<RowFormat> formats_;
  std::vector<DataType> dtypes_;
  std::vector<int64_t> dims_;
};

REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingStoredRowsGroupLookup")
                            .Device(tensorflow::DEVICE_CPU)
                            .TypeConstraint<float>("dtype"),
                        StoredRowsGroupLookupOp);

}  // namespace
}  // namespace fused_embedding
