#include <string>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status ColumnKeysShape(InferenceContext* c) {
  std::vector<std::string> layouts;
  TF_RETURN_IF_ERROR(c->GetAttr("layouts", &layouts));
  std::vector<tensorflow::DataType> values, keys, rows;
  TF_RETURN_IF_ERROR(c->GetAttr("Tvalues", &values));
  TF_RETURN_IF_ERROR(c->GetAttr("Tkeys", &keys));
  TF_RETURN_IF_ERROR(c->GetAttr("Trows", &rows));
  const int num_features = static_cast<int>(values.size());
  const int num_columns = static_cast<int>(keys.size());
  const int num_placed = static_cast<int>(rows.size());
  const bool has_crosses = num_features != num_columns;
  for (int i = 0; i < num_columns; ++i) c->set_output(i, c->Vector(c->UnknownDim()));
  for (int i = 0; i < num_features; ++i) {
    const std::string layout = i < static_cast<int>(layouts.size()) ? layouts[i] : "";
    const bool is_matrix = layout == "dense" || layout == "full";
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->WithRankAtMost(c->input(i), is_matrix ? 2 : 1, &shape));
    // A dense value may mean none.
    if (layout != "dense" && !has_crosses) c->set_output(i, c->Vector(c->NumElements(shape)));
  }
  for (int i = num_columns; i < num_columns + num_placed; ++i) {
    c->set_output(i, c->Vector(c->UnknownDim()));
    c->set_output(i + num_placed, c->Vector(2));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("FusedEmbeddingColumnKeys")
    .Input("values: Tvalues")
    .Input("row_splits: num_ragged * int64")
    .Input("tables: Ttables")
    .Input("sparse_indices: Tsparse")
    .Input("sparse_shapes: Tsparse")
    .Output("keys: Tkeys")
    .Output("rows: Trows")
    .Output("dense_shapes: Trows")
    .Attr("Tvalues: list({int32, int64, float, string}) >= 1")
    .Attr("num_ragged: int >= 0")
    .Attr("Tkeys: list({int64}) >= 1")
    .Attr("Trows: list({int64}) >= 0")
    .Attr("layouts: list(string)")
    .Attr("kinds: list(string)")
    .Attr("num_buckets: list(int)")
    .Attr("default_keys: list(int)")
    .Attr("column_names: list(string) = []")
    .Attr("Ttables: list({resource}) >= 0 = []")
    .Attr("Tsparse: list({int64}) >= 0 = []")
    .Attr("boundaries: list(float) = []")
    .Attr("num_parts: list(int) = []")
    .Attr("cross_num_buckets: list(int) = []")
    .Attr("hash_keys: list(int) = []")
    .SetShapeFn(ColumnKeysShape)
    .Doc(R"doc(
Turns the features of a batch into the keys of their lookups, all columns in one op.

A column has one feature, or several that are crossed: then each combination of their values in a
row has a key. A dense feature is a matrix in which "" and -1 are places without a value, except in
a cross_part. In full, sparse and ragged features every value counts.

values: of each feature: dense and full `[num_rows]` or `[num_rows, width]`; sparse and ragged
  `[nnz]`.
row_splits: `[num_rows + 1]` of each ragged feature.
tables: lookup tables of stock TensorFlow from strings or int64 to int64, of each feature with the
  kind vocabulary.
sparse_indices: `[nnz, 2]` of each sparse feature of a cross, rows ascending.
sparse_shapes: `[2]` dense shape of each sparse feature of a cross.
keys: `[nnz]` key of each value or combination.
rows: `[nnz]` row of each key, of each column that is dense, full, ragged or crossed, in their
  order.
dense_shapes: `[2]` num_rows and width of these columns; of a ragged one the width is 1.
num_ragged: number of ragged features.
Tkeys: int64 for each column. Lists of types, as TensorFlow does not check sums of several numbers of
  outputs.
Trows: int64 for each column that is dense, full, ragged or crossed.
layouts: of each feature: dense; full, a matrix with a value in each place; sparse or ragged.
kinds: of each feature: identity, the value itself, which is not a string; index, identity with
  num_buckets added to a negative value; hash: the Fingerprint64 of a string, or of the decimal text
  of an integer, modulo the number of buckets; vocabulary: what the table has for the value; bucketized, of dense floats: the number of boundaries up to the
  value, plus num_buckets for each place in front of it in its row; cross_part: what a cross hashes,
  an integer itself or the Fingerprint64 of a string.
num_buckets: of each feature, >= 1. vocabulary: >= 0, the number of buckets behind the table's size
  for the fingerprints of other values. bucketized: the number of boundaries + 1.
default_keys: of each feature: what values outside `[0, num_buckets)` become with the kind identity,
  if it is not negative; what values outside a vocabulary without buckets become.
column_names: what errors call each column; none: "column" and its number.
Ttables: resource for each feature with the kind vocabulary.
Tsparse: int64 for each sparse feature of a cross.
boundaries: ascending, of one bucketized feature after the other.
num_parts: the number of features of each column; none: 1.
cross_num_buckets: number of keys of each cross.
hash_keys: of each cross: what its hash starts with.
)doc");

}  // namespace fused_embedding
