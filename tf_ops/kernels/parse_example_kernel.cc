#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/ctstring.h"
#include "tf_ops/core/input/parse_example.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::DataType;
using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

// An element of a tensor of strings that was just made, and is empty.
class NewText {
 public:
  void Assign(const uint8_t* data, size_t size) {
    text_.assign(reinterpret_cast<const char*>(data), size);
  }
  // A short string lies in the element itself: its size and its bytes are written at once.
  void AssignWord(uint64_t word, size_t size) {
    TF_TString* text = reinterpret_cast<TF_TString*>(&text_);
    text->u.smll.size = static_cast<uint8_t>(size << 2 | TF_TSTR_SMALL);
    std::memcpy(text->u.smll.str, &word, sizeof(word));
    text->u.smll.str[size] = '\0';
  }

 private:
  tstring text_;
};
static_assert(sizeof(NewText) == sizeof(tstring) && sizeof(tstring) == sizeof(TF_TString));

using ParseOutput = FeatureOutput<NewText>;

ListKind ToListKind(DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_STRING:
      return ListKind::kText;
    case tensorflow::DT_FLOAT:
      return ListKind::kFloat;
    default:
      return ListKind::kInteger;
  }
}

Status ReadKeyKind(const std::string& name, ListKind of, KeyRule* rule) {
  FE_RETURN_IF_ERROR(ParseKeyKind(name, &rule->kind));
  if (rule->kind != KeyKind::kHash && rule->kind != KeyKind::kIdentity) {
    return InvalidArgument("key_kinds must be identity or hash, got ", name);
  }
  return CheckKeyRule(*rule, of == ListKind::kText ? FeatureType::kText : FeatureType::kInteger);
}

std::string_view ViewOf(const tstring& text) { return {text.data(), text.size()}; }

std::vector<std::string_view> ViewsOf(const Tensor& texts) {
  std::vector<std::string_view> views(static_cast<size_t>(texts.NumElements()));
  const tstring* data = texts.flat<tstring>().data();
  for (size_t i = 0; i < views.size(); ++i) views[i] = ViewOf(data[i]);
  return views;
}

// Of the dense shapes, which one may have values of any number; and values of a step of that one.
struct DenseAttrs {
  bool is_padded = false;
  int64_t num_values = 1;
};

// A rule by which a feature becomes keys.
struct KeyAttrs {
  std::string name;
  ListKind kind = ListKind::kInteger;
  KeyRule rule;
};

class ParseExampleAttrs {
 public:
  absl::Status Read(OpKernelConstruction* ctx);

  int num_sparse() const { return static_cast<int>(sparse_types.size()); }
  int num_dense() const { return static_cast<int>(dense_types.size()); }
  int num_ragged() const { return static_cast<int>(ragged_types.size()); }
  int num_keys() const { return static_cast<int>(keys.size()); }

  std::vector<DataType> sparse_types, dense_types, ragged_types, split_types;
  std::vector<PartialTensorShape> dense_shapes;
  std::vector<DenseAttrs> dense;
  std::vector<KeyAttrs> keys;

 private:
  absl::Status ReadKeys(OpKernelConstruction* ctx);
  absl::Status ReadDenseShape(size_t d);
};

absl::Status ParseExampleAttrs::Read(OpKernelConstruction* ctx) {
  int num_sparse = 0;
  TF_RETURN_IF_ERROR(ctx->GetAttr("sparse_types", &sparse_types));
  TF_RETURN_IF_ERROR(ctx->GetAttr("Tdense", &dense_types));
  TF_RETURN_IF_ERROR(ctx->GetAttr("dense_shapes", &dense_shapes));
  TF_RETURN_IF_ERROR(ctx->GetAttr("ragged_value_types", &ragged_types));
  TF_RETURN_IF_ERROR(ctx->GetAttr("num_sparse", &num_sparse));
  TF_RETURN_IF_ERROR(ctx->GetAttr("ragged_split_types", &split_types));
  dense.resize(dense_shapes.size());
  for (size_t d = 0; d < dense.size(); ++d) TF_RETURN_IF_ERROR(ReadDenseShape(d));
  if (static_cast<size_t>(num_sparse) != sparse_types.size()) {
    return absl::InvalidArgumentError("len(sparse_keys) != len(sparse_types)");
  }
  if (dense_types.size() != dense_shapes.size()) {
    return absl::InvalidArgumentError("len(dense_keys) != len(dense_shapes)");
  }
  if (ragged_types.size() != split_types.size()) {
    return absl::InvalidArgumentError("len(ragged_keys) != len(ragged_split_types)");
  }
  return ReadKeys(ctx);
}

absl::Status ParseExampleAttrs::ReadKeys(OpKernelConstruction* ctx) {
  std::vector<DataType> types, outputs;
  TF_RETURN_IF_ERROR(ctx->GetAttr("key_types", &types));
  TF_RETURN_IF_ERROR(ctx->GetAttr("Tkeys", &outputs));
  const auto names = GetAttr<std::vector<std::string>>(ctx, "key_names");
  const auto kinds = GetAttr<std::vector<std::string>>(ctx, "key_kinds");
  const auto num_buckets = GetAttr<std::vector<int64_t>>(ctx, "key_num_buckets");
  const auto defaults = GetAttr<std::vector<int64_t>>(ctx, "key_defaults");
  for (const size_t size :
       {types.size(), names.size(), kinds.size(), num_buckets.size(), defaults.size()}) {
    if (size == outputs.size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("key_names, key_types, key_kinds, key_num_buckets and key_defaults must have ",
                     "as many entries as Tkeys, ", outputs.size(), ", got ", size));
  }
  for (size_t k = 0; k < names.size(); ++k) {
    KeyAttrs of_rule = {names[k], ToListKind(types[k]), {}};
    of_rule.rule.num_buckets = num_buckets[k];
    of_rule.rule.default_key = defaults[k];
    const Status status = ReadKeyKind(kinds[k], of_rule.kind, &of_rule.rule);
    if (!status.ok()) {
      return ToTfStatus(InvalidArgument("keys of ", names[k], ": ", status.message()));
    }
    keys.push_back(of_rule);
  }
  return absl::OkStatus();
}

absl::Status ParseExampleAttrs::ReadDenseShape(size_t d) {
  const PartialTensorShape& shape = dense_shapes[d];
  bool is_known = shape.dims() >= 0;
  for (int i = 1; i < shape.dims(); ++i) is_known = is_known && shape.dim_size(i) >= 0;
  if (!is_known) {
    return absl::InvalidArgumentError(
        absl::StrCat("dense_shapes[", d,
                     "] has unknown rank or unknown inner dimensions: ", shape.DebugString()));
  }
  dense[d].is_padded = shape.dims() > 0 && shape.dim_size(0) < 0;
  TensorShape values;
  for (int i = dense[d].is_padded ? 1 : 0; i < shape.dims(); ++i) {
    TF_RETURN_IF_ERROR(values.AddDimWithStatus(shape.dim_size(i)));
  }
  dense[d].num_values = values.num_elements();
  return absl::OkStatus();
}

// One run of the op.
class ParseCall {
 public:
  ParseCall(OpKernelContext* ctx, const ParseExampleAttrs& attrs) : ctx_(ctx), attrs_(attrs) {}

  absl::Status Compute() {
    TF_RETURN_IF_ERROR(CheckInputs());
    AddFeatures();
    TF_RETURN_IF_ERROR(AddKeys());
    const std::vector<std::string_view> examples = ViewsOf(serialized());
    const std::vector<std::string_view> names = ViewsOf(ctx_->input(1));
    const TfExec exec(ctx_);
    const ExampleBatch batch = {AsSpan(examples), AsSpan(names), IsSingle()};
    TF_RETURN_IF_ERROR(ToTfStatus(parsed_.Plan(exec, AsSpan(std::as_const(features_)), batch)));
    shapes_.resize(static_cast<size_t>(ctx_->num_outputs()));
    for (int i = 0; i < attrs_.num_sparse(); ++i) TF_RETURN_IF_ERROR(SetShapesOfSparse(i));
    for (int i = 0; i < attrs_.num_dense(); ++i) TF_RETURN_IF_ERROR(SetShapeOfDense(i));
    for (int i = 0; i < attrs_.num_ragged(); ++i) TF_RETURN_IF_ERROR(SetShapesOfRagged(i));
    for (int i = 0; i < attrs_.num_keys(); ++i) TF_RETURN_IF_ERROR(SetShapesOfKeys(i));
    TF_RETURN_IF_ERROR(Allocate(exec));
    for (int i = 0; i < attrs_.num_sparse(); ++i) TakeSparse(i);
    for (int i = 0; i < attrs_.num_dense(); ++i) TakeDense(i);
    for (int i = 0; i < attrs_.num_ragged(); ++i) TakeRagged(i);
    for (int i = 0; i < attrs_.num_keys(); ++i) TakeKeys(i);
    parsed_.Run<NewText>(exec, AsSpan(std::as_const(outputs_)), AsSpan(std::as_const(keys_)));
    return absl::OkStatus();
  }

 private:
  const Tensor& serialized() const { return ctx_->input(0); }
  const Tensor& keys(int list) const { return ctx_->input(2 + list); }
  const Tensor& dense_default(int d) const { return ctx_->input(5 + d); }
  bool IsSingle() const { return serialized().dims() == 0; }

  absl::Status CheckInputs() const;
  absl::Status CheckDefault(int d) const;
  void AddFeatures();
  absl::Status AddKeys();
  void AddFeature(int list, int i, DataType dtype, FeatureLayout layout);

  // Outputs: sparse indices, values and shapes, dense ones, ragged values and splits.
  int SparseOutput(int part, int i) const { return part * attrs_.num_sparse() + i; }
  int DenseOutput(int d) const { return SparseOutput(3, d); }
  int RaggedOutput(int part, int i) const {
    return DenseOutput(attrs_.num_dense()) + part * attrs_.num_ragged() + i;
  }
  int KeyOutput(int part, int i) const { return RaggedOutput(2, 0) + part * attrs_.num_keys() + i; }

  absl::Status SetShape(int output, std::initializer_list<int64_t> dims) {
    return TensorShape::BuildTensorShape({dims.begin(), dims.size()},
                                         &shapes_[static_cast<size_t>(output)]);
  }
  absl::Status SetShapesOfSparse(int i);
  absl::Status SetShapeOfDense(int d);
  absl::Status SetShapesOfRagged(int i);
  absl::Status SetShapesOfKeys(int i);
  absl::Status Allocate(const TfExec& exec);
  void TakeValues(int output, ParseOutput* values);
  void TakeSparse(int i);
  void TakeDense(int d);
  void TakeRagged(int i);
  void TakeKeys(int i);

  OpKernelContext* ctx_;
  const ParseExampleAttrs& attrs_;
  std::vector<ExampleFeature> features_;  // sparse, dense, ragged, those of keys alone
  std::vector<ExampleKeys> keys_;
  std::vector<ParseOutput> outputs_;
  std::vector<TensorShape> shapes_;  // of the op's outputs
  ParsedExamples parsed_;
};

absl::Status ParseCall::CheckInputs() const {
  const Tensor& names = ctx_->input(1);
  if (serialized().dims() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("Expected serialized to be a scalar or vector, got shape: ",
                     serialized().shape().DebugString()));
  }
  if (names.NumElements() > 0 && names.shape() != serialized().shape()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Expected names have the same shape as serialized: name.shape=",
        names.shape().DebugString(), ", serialized.shape=", serialized().shape().DebugString()));
  }
  struct List {
    const char* required;
    int size;
  };
  const List lists[] = {{"len(sparse_keys) == num_sparse", attrs_.num_sparse()},
                        {"len(dense_keys) == len(dense_types)", attrs_.num_dense()},
                        {"len(ragged_keys) == len(ragged_value_types)", attrs_.num_ragged()}};
  for (const int list : {1, 0, 2}) {
    if (keys(list).NumElements() == lists[list].size) continue;
    return absl::InvalidArgumentError(absl::StrCat("Expected ", lists[list].required,
                                                   " but got: ", keys(list).NumElements(), " vs. ",
                                                   lists[list].size));
  }
  for (int d = 0; d < attrs_.num_dense(); ++d) TF_RETURN_IF_ERROR(CheckDefault(d));
  return absl::OkStatus();
}

absl::Status ParseCall::CheckDefault(int d) const {
  const Tensor& value = dense_default(d);
  const PartialTensorShape& shape = attrs_.dense_shapes[static_cast<size_t>(d)];
  if (attrs_.dense[static_cast<size_t>(d)].is_padded) {
    if (value.NumElements() == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("dense_shape[", d, "] is a variable length shape: ", shape.DebugString(),
                     ", therefore def_value[", d,
                     "] must contain a single element (the padding element).  But its shape is: ",
                     value.shape().DebugString()));
  }
  if (value.NumElements() == 0 || shape.IsCompatibleWith(value.shape())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("def_value[", d, "].shape() == ", value.shape().DebugString(),
                   " is not compatible with dense_shapes_[", d, "] == ", shape.DebugString()));
}

void ParseCall::AddFeature(int list, int i, DataType dtype, FeatureLayout layout) {
  ExampleFeature feature;
  feature.name = ViewOf(keys(list).flat<tstring>()(i));
  feature.kind = ToListKind(dtype);
  feature.layout = layout;
  features_.push_back(feature);
}

void ParseCall::AddFeatures() {
  for (int i = 0; i < attrs_.num_sparse(); ++i) {
    AddFeature(0, i, attrs_.sparse_types[static_cast<size_t>(i)], FeatureLayout::kSparse);
  }
  for (int d = 0; d < attrs_.num_dense(); ++d) {
    const DenseAttrs& dense = attrs_.dense[static_cast<size_t>(d)];
    AddFeature(1, d, attrs_.dense_types[static_cast<size_t>(d)],
               dense.is_padded ? FeatureLayout::kPadded : FeatureLayout::kFixed);
    features_.back().num_values = dense.num_values;
    features_.back().has_default = dense_default(d).NumElements() > 0;
    features_.back().shape = attrs_.dense_shapes[static_cast<size_t>(d)].DebugString();
  }
  for (int i = 0; i < attrs_.num_ragged(); ++i) {
    AddFeature(2, i, attrs_.ragged_types[static_cast<size_t>(i)], FeatureLayout::kRagged);
  }
  outputs_.resize(features_.size());
}

// The features of keys may be sparse as well.
absl::Status ParseCall::AddKeys() {
  if (attrs_.num_keys() > 0 && IsSingle()) {
    return absl::InvalidArgumentError(
        "keys are made of a batch: serialized must be a vector, got a scalar");
  }
  for (const KeyAttrs& of_rule : attrs_.keys) {
    size_t f = 0;
    while (f < features_.size() && features_[f].name != of_rule.name) ++f;
    if (f == features_.size()) {
      features_.emplace_back();
      features_.back().name = of_rule.name;
      features_.back().kind = of_rule.kind;
      outputs_.emplace_back();
      outputs_.back().is_wanted = false;
    } else if (features_[f].layout != FeatureLayout::kSparse || features_[f].kind != of_rule.kind) {
      return absl::InvalidArgumentError(
          absl::StrCat("feature \"", of_rule.name,
                       "\" is wanted as keys, and with another type, or dense or ragged"));
    }
    ExampleKeys keys;
    keys.feature = static_cast<int64_t>(f);
    keys.rule = of_rule.rule;
    keys_.push_back(keys);
  }
  return absl::OkStatus();
}

absl::Status ParseCall::SetShapesOfSparse(int i) {
  const int64_t nnz = parsed_.NumValues(i);
  const int64_t rank = IsSingle() ? 1 : 2;
  TF_RETURN_IF_ERROR(SetShape(SparseOutput(0, i), {nnz, rank}));
  TF_RETURN_IF_ERROR(SetShape(SparseOutput(1, i), {nnz}));
  return SetShape(SparseOutput(2, i), {rank});
}

absl::Status ParseCall::SetShapeOfDense(int d) {
  const DenseAttrs& dense = attrs_.dense[static_cast<size_t>(d)];
  const PartialTensorShape& of_one = attrs_.dense_shapes[static_cast<size_t>(d)];
  const int64_t num_steps =
      parsed_.MaxValues(attrs_.num_sparse() + d) / std::max<int64_t>(dense.num_values, 1);
  TensorShape& shape = shapes_[static_cast<size_t>(DenseOutput(d))];
  shape = serialized().shape();
  for (int i = 0; i < of_one.dims(); ++i) {
    const int64_t size = of_one.dim_size(i);
    TF_RETURN_IF_ERROR(shape.AddDimWithStatus(size < 0 ? num_steps : size));
  }
  return absl::OkStatus();
}

absl::Status ParseCall::SetShapesOfRagged(int i) {
  const int feature = attrs_.num_sparse() + attrs_.num_dense() + i;
  const int64_t num_splits = IsSingle() ? 0 : serialized().NumElements() + 1;
  TF_RETURN_IF_ERROR(SetShape(RaggedOutput(0, i), {parsed_.NumValues(feature)}));
  return SetShape(RaggedOutput(1, i), {num_splits});
}

absl::Status ParseCall::SetShapesOfKeys(int i) {
  const int64_t nnz = parsed_.NumValues(keys_[static_cast<size_t>(i)].feature);
  TF_RETURN_IF_ERROR(SetShape(KeyOutput(0, i), {nnz}));
  TF_RETURN_IF_ERROR(SetShape(KeyOutput(1, i), {nnz}));
  return SetShape(KeyOutput(2, i), {2});
}

// On several threads: a new tensor of strings is written once, and its pages are touched.
absl::Status ParseCall::Allocate(const TfExec& exec) {
  const auto num_outputs = static_cast<int64_t>(shapes_.size());
  std::vector<Tensor> tensors(shapes_.size());
  constexpr int64_t kRowNs = 4;
  const int64_t tensor_ns = 500 + kRowNs * serialized().NumElements();
  exec.ParallelFor(num_outputs, tensor_ns, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<int>(begin); i < static_cast<int>(end); ++i) {
      tensorflow::Allocator* allocator = ctx_->get_allocator(ctx_->output_alloc_attr(i));
      const auto index = static_cast<size_t>(i);
      tensors[index] = Tensor(allocator, ctx_->expected_output_dtype(i), shapes_[index]);
    }
  });
  for (int i = 0; i < static_cast<int>(num_outputs); ++i) {
    const auto index = static_cast<size_t>(i);
    if (!tensors[index].IsInitialized()) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot allocate an output of shape ",
                                                       shapes_[index].DebugString(),
                                                       "; use a smaller batch"));
    }
    ctx_->set_output(i, tensors[index]);
  }
  return absl::OkStatus();
}

void ParseCall::TakeValues(int output, ParseOutput* values) {
  Tensor& tensor = *ctx_->mutable_output(output);
  if (tensor.dtype() == tensorflow::DT_STRING) {
    values->values = reinterpret_cast<NewText*>(tensor.flat<tstring>().data());
  } else if (tensor.dtype() == tensorflow::DT_FLOAT) {
    values->values = tensor.flat<float>().data();
  } else {
    values->values = tensor.flat<int64_t>().data();
  }
}

void ParseCall::TakeSparse(int i) {
  ParseOutput& output = outputs_[static_cast<size_t>(i)];
  output.indices = ctx_->mutable_output(SparseOutput(0, i))->flat<int64_t>().data();
  TakeValues(SparseOutput(1, i), &output);
  auto shape = ctx_->mutable_output(SparseOutput(2, i))->flat<int64_t>();
  shape(0) = serialized().NumElements();
  shape(shape.size() - 1) = parsed_.MaxValues(i);
}

void ParseCall::TakeDense(int d) {
  const int feature = attrs_.num_sparse() + d;
  ParseOutput& output = outputs_[static_cast<size_t>(feature)];
  output.default_values = dense_default(d).data();
  output.width = parsed_.MaxValues(feature);
  TakeValues(DenseOutput(d), &output);
}

void ParseCall::TakeRagged(int i) {
  const int feature = attrs_.num_sparse() + attrs_.num_dense() + i;
  ParseOutput& output = outputs_[static_cast<size_t>(feature)];
  TakeValues(RaggedOutput(0, i), &output);
  if (IsSingle()) return;  // no splits
  Tensor& splits = *ctx_->mutable_output(RaggedOutput(1, i));
  if (splits.dtype() == tensorflow::DT_INT32) {
    output.splits = splits.flat<int32_t>().data();
  } else {
    output.splits = splits.flat<int64_t>().data();
  }
  std::visit([](auto* first) { *first = 0; }, output.splits);
}

void ParseCall::TakeKeys(int i) {
  ExampleKeys& keys = keys_[static_cast<size_t>(i)];
  keys.keys = ctx_->mutable_output(KeyOutput(0, i))->flat<int64_t>().data();
  keys.rows = ctx_->mutable_output(KeyOutput(1, i))->flat<int64_t>().data();
  auto shape = ctx_->mutable_output(KeyOutput(2, i))->flat<int64_t>();
  shape(0) = serialized().NumElements();
  shape(1) = parsed_.MaxValues(keys.feature);
}

class ParseExampleOp : public tensorflow::OpKernel {
 public:
  explicit ParseExampleOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, attrs_.Read(ctx));
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, ParseCall(ctx, attrs_).Compute());
  }

 private:
  ParseExampleAttrs attrs_;
};

REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingParseExample").Device(tensorflow::DEVICE_CPU),
                        ParseExampleOp);

}  // namespace
}  // namespace fused_embedding
