#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::DimensionOrConstant;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status ParseExampleShape(InferenceContext* c) {
  int num_sparse = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_sparse", &num_sparse));
  std::vector<tensorflow::PartialTensorShape> dense_shapes;
  TF_RETURN_IF_ERROR(c->GetAttr("dense_shapes", &dense_shapes));
  std::vector<tensorflow::DataType> ragged_types, key_types;
  TF_RETURN_IF_ERROR(c->GetAttr("ragged_value_types", &ragged_types));
  TF_RETURN_IF_ERROR(c->GetAttr("Tkeys", &key_types));
  ShapeHandle serialized, names;
  TF_RETURN_IF_ERROR(c->WithRankAtMost(c->input(0), 1, &serialized));
  TF_RETURN_IF_ERROR(c->WithRankAtMost(c->input(1), 1, &names));
  const bool has_rank = c->RankKnown(serialized);
  const DimensionOrConstant rank =
      has_rank ? DimensionOrConstant(c->Rank(serialized) + 1) : c->UnknownDim();
  const bool is_batch = has_rank && c->Rank(serialized) == 1;
  DimensionHandle num_splits;
  TF_RETURN_IF_ERROR(c->Add(is_batch ? c->Dim(serialized, 0) : c->UnknownDim(), 1, &num_splits));

  int output = 0;
  for (int i = 0; i < num_sparse; ++i) c->set_output(output++, c->Matrix(c->UnknownDim(), rank));
  for (int i = 0; i < num_sparse; ++i) c->set_output(output++, c->Vector(c->UnknownDim()));
  for (int i = 0; i < num_sparse; ++i) c->set_output(output++, c->Vector(rank));
  for (const tensorflow::PartialTensorShape& dense_shape : dense_shapes) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->MakeShapeFromPartialTensorShape(dense_shape, &shape));
    TF_RETURN_IF_ERROR(c->Concatenate(serialized, shape, &shape));
    c->set_output(output++, shape);
  }
  for (size_t i = 0; i < ragged_types.size(); ++i) {
    c->set_output(output++, c->Vector(c->UnknownDim()));
  }
  for (size_t i = 0; i < ragged_types.size(); ++i) c->set_output(output++, c->Vector(num_splits));
  for (size_t i = 0; i < 2 * key_types.size(); ++i) {
    c->set_output(output++, c->Vector(c->UnknownDim()));
  }
  for (size_t i = 0; i < key_types.size(); ++i) c->set_output(output++, c->Vector(2));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("FusedEmbeddingParseExample")
    .Input("serialized: string")
    .Input("names: string")
    .Input("sparse_keys: string")
    .Input("dense_keys: string")
    .Input("ragged_keys: string")
    .Input("dense_defaults: Tdense")
    .Output("sparse_indices: num_sparse * int64")
    .Output("sparse_values: sparse_types")
    .Output("sparse_shapes: num_sparse * int64")
    .Output("dense_values: Tdense")
    .Output("ragged_values: ragged_value_types")
    .Output("ragged_row_splits: ragged_split_types")
    .Output("keys: Tkeys")
    .Output("key_rows: Tkeys")
    .Output("key_shapes: Tkeys")
    .Attr("Tdense: list({float, int64, string}) >= 0")
    .Attr("num_sparse: int >= 0")
    .Attr("sparse_types: list({float, int64, string}) >= 0")
    .Attr("ragged_value_types: list({float, int64, string}) >= 0")
    .Attr("ragged_split_types: list({int32, int64}) >= 0")
    .Attr("dense_shapes: list(shape) >= 0")
    .Attr("Tkeys: list({int64}) >= 0 = []")
    .Attr("key_names: list(string) = []")
    .Attr("key_types: list({int64, string}) >= 0 = []")
    .Attr("key_kinds: list(string) = []")
    .Attr("key_num_buckets: list(int) = []")
    .Attr("key_defaults: list(int) = []")
    .SetShapeFn(ParseExampleShape)
    .Doc(R"doc(
Parses serialized Example messages: ParseExampleV2 of stock TensorFlow, with its inputs, outputs,
attrs and errors.

What is accepted, the values and the texts of errors are stock's. Two inputs that end the process
there are errors here: a length of 2^31 or more of a text or of packed floats, and more floats that
are not packed than a dense feature has. So is a dense shape `[None, 0]`.

serialized: `[num_examples]`, or one example as a scalar.
names: as serialized, what errors call the examples; or `[0]`.
sparse_keys: `[num_sparse]` names of the features that become sparse.
dense_keys: names of the dense features.
ragged_keys: names of the features that become ragged.
dense_defaults: of each dense feature what stands in an example without it, of its shape, or empty:
  then every example must have it. Of a feature of variable length one value, the padding.
sparse_indices: `[nnz, 2]` of each sparse feature: example and place in it; `[nnz, 1]` of one example.
sparse_values: `[nnz]`.
sparse_shapes: `[2]`, num_examples and the most values of one; `[1]` of one example.
dense_values: `[num_examples]` + the dense shape; the first dimension of a variable length is that of
  the longest example. Of one example without num_examples.
ragged_values: `[nnz]`.
ragged_row_splits: `[num_examples + 1]`; `[0]` of one example.
num_sparse: number of sparse features.
sparse_types: type of each sparse feature: that of its list, bytes, float or int64.
ragged_value_types: type of each ragged feature.
ragged_split_types: type of the row splits of each ragged feature.
dense_shapes: the shape of each dense feature in an example; the first dimension may be unknown.
keys: `[nnz]` keys by each rule, which a feature column makes of a sparse feature.
key_rows: `[nnz]` the example of each.
key_shapes: `[2]`, num_examples and the most values of one.
Tkeys: int64 for each rule. One or more need serialized to be a vector.
key_names: of each rule its feature, which may be sparse too, but not dense or ragged.
key_types: type of the feature of each rule.
key_kinds: `identity` of an integer, or `hash`.
key_num_buckets: as num_buckets of FusedEmbeddingColumnKeys.
key_defaults: as default_keys there.
)doc");

}  // namespace fused_embedding
