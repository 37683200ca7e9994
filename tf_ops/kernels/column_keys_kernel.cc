#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/input/column_keys.h"
#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// A tensor of strings as core reads texts.
struct TensorTexts {
  const tensorflow::tstring* data = nullptr;
  int64_t size = 0;

  std::string_view operator[](int64_t i) const { return {data[i].data(), data[i].size()}; }
};

using Column = KeyColumn<TensorTexts>;

enum class Layout { kDense, kSparse, kRagged };

Status ParseLayout(const std::string& name, Layout* layout) {
  if (name == "dense") {
    *layout = Layout::kDense;
  } else if (name == "sparse") {
    *layout = Layout::kSparse;
  } else if (name == "ragged") {
    *layout = Layout::kRagged;
  } else {
    return InvalidArgument("layout must be dense, sparse or ragged, got '", name, "'");
  }
  return Status();
}

class ColumnKeysOp : public tensorflow::OpKernel {
 public:
  explicit ColumnKeysOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadAttrs(ctx));
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<Column> columns(layouts_.size());
    std::vector<Tensor> keys(layouts_.size());
    for (int c = 0; c < num_columns(); ++c) {
      Column& column = columns[Index(c)];
      FE_REQUIRES_OK(ctx, Named(c, ReadValues(ctx, c, &column)));
      OP_REQUIRES_OK(ctx, Allocate(ctx, column.size(), &keys[Index(c)]));
      column.keys = keys[Index(c)].flat<int64_t>().data();
    }
    const auto has_none = std::make_unique<std::atomic<bool>[]>(layouts_.size());
    WriteColumnKeys<TensorTexts>(TfExec(ctx), AsSpan(columns), {has_none.get(), num_columns()});
    int placed = 0;
    for (int c = 0; c < num_columns(); ++c) {
      Tensor rows;
      if (layouts_[Index(c)] != Layout::kSparse) {
        OP_REQUIRES_OK(ctx, WriteRows(ctx, c, columns[Index(c)].size(), placed, &rows));
      }
      if (has_none[Index(c)].load(std::memory_order_relaxed)) {
        const int64_t kept = DropNone(columns[Index(c)], rows.flat<int64_t>().data());
        keys[Index(c)] = keys[Index(c)].Slice(0, kept);
        rows = rows.Slice(0, kept);
      }
      ctx->set_output(c, keys[Index(c)]);
      if (layouts_[Index(c)] != Layout::kSparse) ctx->set_output(num_columns() + placed++, rows);
    }
  }

 private:
  static size_t Index(int c) { return static_cast<size_t>(c); }
  int num_columns() const { return static_cast<int>(layouts_.size()); }

  Status Named(int c, const Status& status) const {
    return InColumn(c, status, names_.empty() ? nullptr : names_[Index(c)].c_str());
  }

  Status ReadAttrs(OpKernelConstruction* ctx) {
    const auto types = GetAttr<std::vector<tensorflow::DataType>>(ctx, "Tvalues");
    const auto layouts = GetAttr<std::vector<std::string>>(ctx, "layouts");
    const auto kinds = GetAttr<std::vector<std::string>>(ctx, "kinds");
    const auto num_buckets = GetAttr<std::vector<int64_t>>(ctx, "num_buckets");
    const auto default_keys = GetAttr<std::vector<int64_t>>(ctx, "default_keys");
    names_ = GetAttr<std::vector<std::string>>(ctx, "column_names");
    const size_t size = types.size();
    if (layouts.size() != size || kinds.size() != size || num_buckets.size() != size ||
        default_keys.size() != size || (!names_.empty() && names_.size() != size) ||
        GetAttr<std::vector<tensorflow::DataType>>(ctx, "Tkeys").size() != size) {
      return InvalidArgument(
          "Tkeys, layouts, kinds, num_buckets, default_keys and column_names must be of as "
          "many columns as values, ",
          size);
    }
    int num_ragged = 0;
    for (size_t c = 0; c < size; ++c) {
      KeyRule rule{KeyKind::kIdentity, num_buckets[c], default_keys[c]};
      layouts_.emplace_back();
      FE_RETURN_IF_ERROR(ParseLayout(layouts[c], &layouts_.back()));
      FE_RETURN_IF_ERROR(ParseKeyKind(kinds[c], &rule.kind));
      FE_RETURN_IF_ERROR(
          Named(static_cast<int>(c), CheckKeyRule(rule, types[c] == tensorflow::DT_STRING)));
      rules_.push_back(rule);
      ragged_.push_back(num_ragged);
      num_ragged += layouts_.back() == Layout::kRagged;
      num_placed_ += layouts_.back() != Layout::kSparse;
    }
    if (GetAttr<int64_t>(ctx, "num_ragged") != num_ragged ||
        GetAttr<std::vector<tensorflow::DataType>>(ctx, "Trows").size() !=
            static_cast<size_t>(num_placed_)) {
      return InvalidArgument("num_ragged must be the number of ragged layouts, ", num_ragged,
                             ", and Trows have one for each dense or ragged one, ", num_placed_);
    }
    return Status();
  }

  Status ReadValues(OpKernelContext* ctx, int c, Column* column) const {
    const Tensor& values = ctx->input(c);
    column->is_dense = layouts_[Index(c)] == Layout::kDense;
    column->rule = rules_[Index(c)];
    if (values.dims() != 1 && !(column->is_dense && values.dims() == 2)) {
      return InvalidArgument("values must be ",
                             column->is_dense ? "[num_rows] or [num_rows, width]" : "a vector",
                             ", got shape ", values.shape().DebugString());
    }
    if (values.dtype() == tensorflow::DT_STRING) {
      column->values = TensorTexts{values.flat<tensorflow::tstring>().data(), values.NumElements()};
    } else if (values.dtype() == tensorflow::DT_INT32) {
      column->values = InputSpan<int32_t>(values);
    } else {
      column->values = InputSpan<int64_t>(values);
    }
    return Status();
  }

  // Not an output yet: it may become a part of the tensor, where values that mean none are dropped.
  static absl::Status Allocate(OpKernelContext* ctx, int64_t size, Tensor* tensor) {
    return ctx->allocate_temp(tensorflow::DT_INT64, tensorflow::TensorShape({size}), tensor);
  }

  // The rows of a column's values, and its output dense_shape, the `placed`-th one.
  absl::Status WriteRows(OpKernelContext* ctx, int c, int64_t num_values, int placed,
                         Tensor* rows) const {
    TF_RETURN_IF_ERROR(Allocate(ctx, num_values, rows));
    Tensor* dense_shape = nullptr;
    TF_RETURN_IF_ERROR(
        AllocateOutput(ctx, num_columns() + num_placed_ + placed, {2}, &dense_shape));
    auto shape = dense_shape->flat<int64_t>();
    if (layouts_[Index(c)] == Layout::kDense) {
      const Tensor& values = ctx->input(c);
      shape(0) = values.dim_size(0);
      shape(1) = values.dims() == 2 ? values.dim_size(1) : 1;
      WriteRowsOfMatrix(shape(1), OutputSpan<int64_t>(rows));
      return absl::OkStatus();
    }
    const Tensor& splits = ctx->input(num_columns() + ragged_[Index(c)]);
    TF_RETURN_IF_ERROR(ToTfStatus(Named(c, CheckVector("row_splits", splits))));
    TF_RETURN_IF_ERROR(ToTfStatus(
        Named(c, WriteRowsOfRagged(InputSpan<int64_t>(splits), OutputSpan<int64_t>(rows)))));
    shape(0) = splits.NumElements() - 1;
    shape(1) = 1;
    return absl::OkStatus();
  }

  std::vector<Layout> layouts_;
  std::vector<int> ragged_;  // of each column: how many ragged ones are in front of it
  int num_placed_ = 0;       // columns that are not sparse
  std::vector<KeyRule> rules_;
  std::vector<std::string> names_;
};

REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingColumnKeys").Device(tensorflow::DEVICE_CPU),
                        ColumnKeysOp);

}  // namespace
}  // namespace fused_embedding
