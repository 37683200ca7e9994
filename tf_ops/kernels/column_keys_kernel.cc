#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/input/column_keys.h"
#include "tf_ops/core/input/cross.h"
#include "tf_ops/kernels/column_keys_attrs.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::lookup::LookupInterface;

// A tensor of strings as core reads texts.
struct TensorTexts {
  const tensorflow::tstring* data = nullptr;
  int64_t size = 0;

  std::string_view operator[](int64_t i) const { return {data[i].data(), data[i].size()}; }
};

using Column = KeyColumn<TensorTexts>;

absl::Status Allocate(OpKernelContext* ctx, int64_t size, Tensor* tensor) {
  return ctx->allocate_temp(tensorflow::DT_INT64, tensorflow::TensorShape({size}), tensor);
}

// A feature's values as a vector of the vocabulary's type.
absl::Status AsKeysOf(const LookupInterface& vocabulary, const Tensor& values, Tensor* keys) {
  const tensorflow::TensorShape shape({values.NumElements()});
  const bool is_cast = values.dtype() == tensorflow::DT_INT32;
  const tensorflow::DataType dtype = is_cast ? tensorflow::DT_INT64 : values.dtype();
  if (vocabulary.key_dtype() != dtype || vocabulary.value_dtype() != tensorflow::DT_INT64) {
    return absl::InvalidArgumentError(
        absl::StrCat("the vocabulary must map ", tensorflow::DataTypeString(dtype),
                     " to int64, but it maps ", tensorflow::DataTypeString(vocabulary.key_dtype()),
                     " to ", tensorflow::DataTypeString(vocabulary.value_dtype())));
  }
  if (is_cast) {
    const auto from = InputSpan<int32_t>(values);
    *keys = Tensor(dtype, shape);
    std::copy(from.begin(), from.end(), keys->flat<int64_t>().data());
  } else if (!keys->CopyFrom(values, shape)) {
    return absl::InternalError("values cannot be seen as a vector");
  }
  return absl::OkStatus();
}

// The keys of one feature, and where they are.
struct FeaturePairs {
  Tensor keys;
  Tensor rows;  // [nnz]; of a sparse feature of a cross its indices, [nnz, 2]
  int64_t num_rows = 0;
  int64_t width = 0;

  CrossPart AsCrossPart() const {
    return {InputSpan<int64_t>(keys), rows.flat<int64_t>().data(), rows.dims() == 2 ? 2 : 1};
  }
};

// One run of the op.
class Batch {
 public:
  Batch(OpKernelContext* ctx, const ColumnKeysAttrs& attrs)
      : ctx_(ctx),
        attrs_(attrs),
        features_(attrs.features().size()),
        pairs_(attrs.features().size()),
        has_none_(std::make_unique<std::atomic<bool>[]>(attrs.features().size())) {}

  absl::Status Compute() {
    for (int f = 0; f < attrs_.num_features(); ++f) {
      TF_RETURN_IF_ERROR(Named(f, ReadFeature(f)));
    }
    TF_RETURN_IF_ERROR(FindInVocabularies());
    WriteColumnKeys<TensorTexts>(TfExec(ctx_), AsSpan(std::as_const(features_)),
                                 {has_none_.get(), attrs_.num_features()});
    for (int f = 0; f < attrs_.num_features(); ++f) {
      TF_RETURN_IF_ERROR(Named(f, PlaceFeature(f)));
    }
    int placed = 0;
    for (int c = 0; c < attrs_.num_columns(); ++c) {
      TF_RETURN_IF_ERROR(OutputColumn(c, placed));
      placed += attrs_.IsPlaced(attrs_.columns()[Index(c)]);
    }
    return absl::OkStatus();
  }

 private:
  static size_t Index(int i) { return static_cast<size_t>(i); }
  const FeatureAttrs& attrs(int f) const { return attrs_.features()[Index(f)]; }

  // Inputs, list by list.
  const Tensor& values(int f) const { return ctx_->input(f); }
  const Tensor& row_splits(int f) const {
    return ctx_->input(attrs_.num_features() + attrs(f).ragged);
  }
  int table(int f) const { return attrs_.num_features() + attrs_.num_ragged() + attrs(f).table; }
  const Tensor& sparse_indices(int f) const {
    const int first = attrs_.num_features() + attrs_.num_ragged() + attrs_.num_tables();
    return ctx_->input(first + attrs(f).sparse);
  }
  const Tensor& sparse_shape(int f) const {
    const int first = attrs_.num_features() + attrs_.num_ragged() + attrs_.num_tables();
    return ctx_->input(first + attrs_.num_sparse() + attrs(f).sparse);
  }

  absl::Status Named(int f, const absl::Status& status) const {
    return attrs_.Named(attrs(f).column, status);
  }

  absl::Status ReadFeature(int f);
  absl::Status FindInVocabularies();
  absl::Status FindInVocabulary(int f);
  absl::Status PlaceFeature(int f);
  absl::Status PlaceMatrix(int f);
  absl::Status PlaceSparse(int f);
  absl::Status OutputColumn(int c, int placed);
  absl::Status OutputCross(int c, int placed);
  absl::Status OutputShape(int placed, int64_t num_rows, int64_t width);

  OpKernelContext* ctx_;
  const ColumnKeysAttrs& attrs_;
  std::vector<Column> features_;
  std::vector<FeaturePairs> pairs_;
  std::unique_ptr<std::atomic<bool>[]> has_none_;
  // A matrix of which nothing was dropped: the next one of its shape has the same rows.
  const FeaturePairs* matrix_ = nullptr;
};

absl::Status Batch::ReadFeature(int f) {
  const Tensor& input = values(f);
  Column& feature = features_[Index(f)];
  const bool is_matrix = IsMatrix(attrs(f).layout);
  if (input.dims() != 1 && !(is_matrix && input.dims() == 2)) {
    return ToTfStatus(InvalidArgument("values must be ",
                                      is_matrix ? "[num_rows] or [num_rows, width]" : "a vector",
                                      ", got shape ", input.shape().DebugString()));
  }
  feature.rule = attrs(f).rule;
  feature.drops_none = attrs(f).DropsNone();
  feature.width = input.dims() == 2 ? input.dim_size(1) : 1;
  if (input.dtype() == tensorflow::DT_STRING) {
    feature.values = TensorTexts{input.flat<tensorflow::tstring>().data(), input.NumElements()};
  } else if (input.dtype() == tensorflow::DT_INT32) {
    feature.values = InputSpan<int32_t>(input);
  } else if (input.dtype() == tensorflow::DT_FLOAT) {
    feature.values = InputSpan<float>(input);
  } else {
    feature.values = InputSpan<int64_t>(input);
  }
  // Not an output yet: it may become a part of the tensor, where values that mean none are dropped.
  Tensor& keys = pairs_[Index(f)].keys;
  TF_RETURN_IF_ERROR(Allocate(ctx_, feature.size(), &keys));
  feature.keys = keys.flat<int64_t>().data();
  return absl::OkStatus();
}

absl::Status Batch::FindInVocabularies() {
  std::vector<int> with_vocabulary;
  for (int f = 0; f < attrs_.num_features(); ++f) {
    if (attrs(f).rule.kind == KeyKind::kVocabulary) with_vocabulary.push_back(f);
  }
  std::vector<absl::Status> found(with_vocabulary.size());
  constexpr int64_t kFeatureNs = 50'000;  // some 1,000 values
  const auto size = static_cast<int64_t>(with_vocabulary.size());
  TfExec(ctx_).ParallelFor(size, kFeatureNs, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      found[i] = Named(with_vocabulary[i], FindInVocabulary(with_vocabulary[i]));
    }
  });
  for (const absl::Status& status : found) TF_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// The indices of a feature's values, by the table that stock's column made.
absl::Status Batch::FindInVocabulary(int f) {
  tensorflow::core::RefCountPtr<LookupInterface> vocabulary;
  TF_RETURN_IF_ERROR(
      tensorflow::LookupResource(ctx_, HandleFromInput(ctx_, table(f)), &vocabulary));
  Tensor wanted;
  TF_RETURN_IF_ERROR(AsKeysOf(*vocabulary, values(f), &wanted));
  Tensor not_found(tensorflow::DT_INT64, {});
  not_found.scalar<int64_t>()() = kNotFound;
  features_[Index(f)].vocabulary_size = static_cast<int64_t>(vocabulary->size());
  return vocabulary->Find(ctx_, wanted, &pairs_[Index(f)].keys, not_found);
}

absl::Status Batch::PlaceFeature(int f) {
  FeaturePairs& pairs = pairs_[Index(f)];
  const Layout layout = attrs(f).layout;
  if (layout == Layout::kSparse) {
    const bool is_crossed = attrs_.columns()[Index(attrs(f).column)].IsCross();
    return is_crossed ? PlaceSparse(f) : absl::OkStatus();
  }
  if (IsMatrix(layout)) return PlaceMatrix(f);
  const Tensor& splits = row_splits(f);
  TF_RETURN_IF_ERROR(ToTfStatus(CheckVector("row_splits", splits)));
  TF_RETURN_IF_ERROR(Allocate(ctx_, pairs.keys.NumElements(), &pairs.rows));
  const Span<int64_t> rows = OutputSpan<int64_t>(&pairs.rows);
  TF_RETURN_IF_ERROR(ToTfStatus(WriteRowsOfRagged(InputSpan<int64_t>(splits), rows)));
  pairs.num_rows = splits.NumElements() - 1;
  pairs.width = 1;
  return absl::OkStatus();
}

absl::Status Batch::PlaceMatrix(int f) {
  FeaturePairs& pairs = pairs_[Index(f)];
  pairs.num_rows = values(f).dim_size(0);
  pairs.width = features_[Index(f)].width;
  const bool has_none = has_none_[Index(f)].load(std::memory_order_relaxed);
  if (!has_none && matrix_ != nullptr && matrix_->num_rows == pairs.num_rows &&
      matrix_->width == pairs.width) {
    pairs.rows = matrix_->rows;
    return absl::OkStatus();
  }
  TF_RETURN_IF_ERROR(Allocate(ctx_, pairs.keys.NumElements(), &pairs.rows));
  const Span<int64_t> rows = OutputSpan<int64_t>(&pairs.rows);
  WriteRowsOfMatrix(pairs.width, rows);
  if (has_none) {
    const int64_t kept = DropNone(features_[Index(f)], rows.data);
    pairs.keys = pairs.keys.Slice(0, kept);
    pairs.rows = pairs.rows.Slice(0, kept);
  } else {
    matrix_ = &pairs;
  }
  return absl::OkStatus();
}

// A sparse feature of a cross; those of other columns stay where their SparseTensor has them.
absl::Status Batch::PlaceSparse(int f) {
  FeaturePairs& pairs = pairs_[Index(f)];
  const Tensor& indices = sparse_indices(f);
  const Tensor& shape = sparse_shape(f);
  if (indices.shape() != tensorflow::TensorShape({pairs.keys.NumElements(), 2}) ||
      shape.shape() != tensorflow::TensorShape({2})) {
    return absl::InvalidArgumentError(
        absl::StrCat("sparse_indices must be [nnz, 2] for nnz = ", pairs.keys.NumElements(),
                     " values and sparse_shapes [2], got shapes ", indices.shape().DebugString(),
                     " and ", shape.shape().DebugString()));
  }
  pairs.rows = indices;
  pairs.num_rows = shape.flat<int64_t>()(0);
  return absl::OkStatus();
}

absl::Status Batch::OutputColumn(int c, int placed) {
  const ColumnAttrs& column = attrs_.columns()[Index(c)];
  if (column.IsCross()) return attrs_.Named(c, OutputCross(c, placed));
  const FeaturePairs& pairs = pairs_[Index(column.first_feature)];
  ctx_->set_output(c, pairs.keys);
  if (!attrs_.IsPlaced(column)) return absl::OkStatus();
  ctx_->set_output(attrs_.num_columns() + placed, pairs.rows);
  return OutputShape(placed, pairs.num_rows, pairs.width);
}

absl::Status Batch::OutputCross(int c, int placed) {
  const ColumnAttrs& column = attrs_.columns()[Index(c)];
  const int64_t num_rows = pairs_[Index(column.first_feature)].num_rows;
  std::vector<CrossPart> parts;
  for (int i = 0; i < column.num_features; ++i) {
    const FeaturePairs& pairs = pairs_[Index(column.first_feature + i)];
    if (pairs.num_rows != num_rows) {
      return absl::InvalidArgumentError(absl::StrCat(
          "features of a cross must have as many rows, got ", num_rows, " and ", pairs.num_rows));
    }
    parts.push_back(pairs.AsCrossPart());
  }
  const Cross cross(column.cross, std::move(parts));
  int64_t size = 0, width = 0;
  TF_RETURN_IF_ERROR(ToTfStatus(cross.Count(num_rows, &size, &width)));
  Tensor *keys = nullptr, *rows = nullptr;
  TF_RETURN_IF_ERROR(AllocateOutput(ctx_, c, {size}, &keys));
  TF_RETURN_IF_ERROR(AllocateOutput(ctx_, attrs_.num_columns() + placed, {size}, &rows));
  cross.Write(keys->flat<int64_t>().data(), rows->flat<int64_t>().data());
  return OutputShape(placed, num_rows, width);
}

absl::Status Batch::OutputShape(int placed, int64_t num_rows, int64_t width) {
  const int index = attrs_.num_columns() + attrs_.num_placed() + placed;
  Tensor* dense_shape = nullptr;
  TF_RETURN_IF_ERROR(AllocateOutput(ctx_, index, {2}, &dense_shape));
  dense_shape->flat<int64_t>()(0) = num_rows;
  dense_shape->flat<int64_t>()(1) = width;
  return absl::OkStatus();
}

class ColumnKeysOp : public tensorflow::OpKernel {
 public:
  explicit ColumnKeysOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, attrs_.Read(ctx));
  }

  void Compute(OpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, Batch(ctx, attrs_).Compute()); }

 private:
  ColumnKeysAttrs attrs_;
};

REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingColumnKeys").Device(tensorflow::DEVICE_CPU),
                        ColumnKeysOp);

}  // namespace
}  // namespace fused_embedding
