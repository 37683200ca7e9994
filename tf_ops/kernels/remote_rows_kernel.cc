#include <algorithm>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/group/table_group_lookup.h"
#include "tf_ops/core/lookup/remote/remote_rows.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// What the ops for all kinds of tables have in common: outputs rows, part_sizes, and keys of each
// table. Tables are the first inputs, the message follows them.
class RemoteRowsOp : public tensorflow::OpKernel {
 public:
  explicit RemoteRowsOp(OpKernelConstruction* ctx, tensorflow::DataType dtype)
      : OpKernel(ctx), dtype_(dtype) {
    dims_ = GetAttr<std::vector<int64_t>>(ctx, "dims");
    names_ = GetAttr<std::vector<std::string>>(ctx, "table_names");
    const size_t num_tables = static_cast<size_t>(GetAttr<int64_t>(ctx, "num_tables"));
    FE_REQUIRES_OK(ctx, CheckAttrs(num_tables));
    for (const int64_t dim : dims_) row_bytes_.push_back(dim * DataTypeSize(dtype));
  }

 protected:
  struct Found {
    KeyMessage message;
    std::vector<MessagePart> parts;
    char* rows = nullptr;
  };

  int num_tables() const { return static_cast<int>(dims_.size()); }
  tensorflow::DataType dtype() const { return dtype_; }
  const std::vector<std::string>& names() const { return names_; }
  int64_t row_bytes(int t) const { return row_bytes_[static_cast<size_t>(t)]; }

  // Reads the message and allocates the outputs.
  absl::Status Start(OpKernelContext* ctx, bool has_counts, Found* found) const {
    const Tensor& words = ctx->input(num_tables());
    TF_RETURN_IF_ERROR(ToTfStatus(CheckVector("message", words)));
    TF_RETURN_IF_ERROR(ToTfStatus(
        ReadMessage(InputSpan<int64_t>(words), num_tables(), has_counts, &found->message)));
    int64_t num_bytes = 0;
    TF_RETURN_IF_ERROR(
        ToTfStatus(SplitMessage(found->message, AsSpan(row_bytes_), &found->parts, &num_bytes)));
    Tensor *rows = nullptr, *part_sizes = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 0, {num_bytes / DataTypeSize(dtype_)}, &rows));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 1, {num_tables()}, &part_sizes));
    found->rows = static_cast<char*>(rows->data());
    std::copy_n(found->message.num_keys.begin(), num_tables(),
                OutputSpan<int64_t>(part_sizes).begin());
    for (int t = 0; t < num_tables(); ++t) {
      const Span<const int64_t> keys = found->parts[static_cast<size_t>(t)].keys;
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, 2 + t, {keys.size}, &output));
      std::copy_n(keys.begin(), keys.size, OutputSpan<int64_t>(output).begin());
    }
    return absl::OkStatus();
  }

  Status CheckDim(int t, int64_t dim) const {
    if (dim == dims_[static_cast<size_t>(t)]) return Status();
    const std::string name = names_.empty() ? "" : names_[static_cast<size_t>(t)] + ": ";
    return InvalidArgument(name, "rows of the table have ", dim, " values, but the lookup reads ",
                           dims_[static_cast<size_t>(t)]);
  }

 private:
  Status CheckAttrs(size_t num_tables) const {
    constexpr int64_t kMaxDim = int64_t{1} << 40;  // so that bytes do not overflow
    if (dims_.size() != num_tables || (!names_.empty() && names_.size() != num_tables)) {
      return InvalidArgument("dims and table_names must have one entry for each of the ",
                             num_tables, " tables, got ", dims_.size(), " and ", names_.size());
    }
    for (const int64_t dim : dims_) {
      if (dim < 1 || dim > kMaxDim) {
        return InvalidArgument("dims must be >= 1 and at most 2^40, got ", dim);
      }
    }
    return Status();
  }

  const tensorflow::DataType dtype_;
  std::vector<int64_t> dims_;
  std::vector<int64_t> row_bytes_;
  std::vector<std::string> names_;
};

template <typename T, bool kAreVariables>
class ArrayRemoteRowsOp final : public RemoteRowsOp {
 public:
  explicit ArrayRemoteRowsOp(OpKernelConstruction* ctx)
      : RemoteRowsOp(ctx, tensorflow::DataTypeToEnum<T>::value) {}

  void Compute(OpKernelContext* ctx) override {
    GroupTables tables;
    const tensorflow::DataType dtype = this->dtype();
    OP_REQUIRES_OK(
        ctx, kAreVariables ? tables.ReadVariables(ctx, {&dtype, 1}) : tables.ReadTensors(ctx));
    std::vector<TableView> views;
    for (int t = 0; t < num_tables(); ++t) {
      FE_REQUIRES_OK(ctx, CheckDim(t, tables.dim(t)));
      views.push_back(
          {static_cast<const char*>(tables[t].data()), tables[t].dim_size(0), row_bytes(t)});
    }
    Found found;
    OP_REQUIRES_OK(ctx, Start(ctx, /*has_counts=*/false, &found));
    FE_REQUIRES_OK(ctx, GatherParts(TfExec(ctx), AsSpan(std::as_const(views)),
                                    AsSpan(std::as_const(found.parts)), names(), found.rows));
  }
};

// Has also the output handles, of each table.
template <typename T>
class TableRemoteRowsOp final : public RemoteRowsOp {
 public:
  explicit TableRemoteRowsOp(OpKernelConstruction* ctx)
      : RemoteRowsOp(ctx, tensorflow::DataTypeToEnum<T>::value) {
    FE_REQUIRES_OK(ctx, ReadInserts(ctx, &inserts_));
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<TableResourcePtr> tables;
    OP_REQUIRES_OK(ctx, LookupTables(ctx, "resources", &tables));
    for (int t = 0; t < num_tables(); ++t) {
      const auto& layout = tables[static_cast<size_t>(t)]->table()->config().layout;
      FE_REQUIRES_OK(ctx, CheckValueType("dtype", dtype(), layout.value_type));
      FE_REQUIRES_OK(ctx, CheckDim(t, layout.dim));
    }
    Found found;
    OP_REQUIRES_OK(ctx, Start(ctx, /*has_counts=*/true, &found));
    std::vector<TableLookup> lookups;
    for (int t = 0; t < num_tables(); ++t) {
      const MessagePart& part = found.parts[static_cast<size_t>(t)];
      const TableResource& resource = *tables[static_cast<size_t>(t)];
      Tensor* handles = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2 + num_tables() + t, {part.keys.size}, &handles));
      TableLookup lookup;
      lookup.table = resource.table();
      lookup.insert = inserts_[static_cast<size_t>(t)] && !resource.is_frozen();
      lookup.in = {part.keys, part.counts, found.message.step};
      lookup.out.values = found.rows + part.first_byte;
      lookup.out.handles = OutputSpan<int64_t>(handles).data;
      lookups.push_back(lookup);
    }
    FE_REQUIRES_OK(ctx, LookUpTables(TfExec(ctx), AsSpan(lookups),
                                     [](const CpuExec&, int64_t) { return Status(); }));
    for (const TableLookup& lookup : lookups) {
      WarnOfRefused(name(), *lookup.table, lookup.out.num_refused);
    }
  }

 private:
  std::vector<bool> inserts_;  // of each table
};

#define FE_REGISTER(T)                                                                            \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("FusedEmbeddingRemoteRows").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("dtype"), \
      ArrayRemoteRowsOp<T, false>);                                                               \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceRemoteRows")                                \
                              .Device(tensorflow::DEVICE_CPU)                                     \
                              .TypeConstraint<T>("dtype"),                                        \
                          ArrayRemoteRowsOp<T, true>);                                            \
  REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableRemoteRows")                                     \
                              .Device(tensorflow::DEVICE_CPU)                                     \
                              .TypeConstraint<T>("dtype"),                                        \
                          TableRemoteRowsOp<T>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
