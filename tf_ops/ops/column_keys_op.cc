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
  std::vector<tensorflow::DataType> keys, rows;
  TF_RETURN_IF_ERROR(c->GetAttr("Tkeys", &keys));
  TF_RETURN_IF_ERROR(c->GetAttr("Trows", &rows));
  const int num_columns = static_cast<int>(keys.size());
  const int num_placed = static_cast<int>(rows.size());
  if (c->num_inputs() < num_columns) {
    return absl::InvalidArgumentError("there must be one tensor of values for each of Tkeys");
  }
  int placed = num_columns;
  for (int i = 0; i < num_columns; ++i) {
    const bool is_dense = i < static_cast<int>(layouts.size()) && layouts[i] == "dense";
    ShapeHandle values;
    TF_RETURN_IF_ERROR(c->WithRankAtMost(c->input(i), is_dense ? 2 : 1, &values));
    // A dense value may mean none.
    c->set_output(i, is_dense ? c->Vector(c->UnknownDim()) : values);
  }
  for (int i = 0; i < num_placed; ++i, ++placed) {
    c->set_output(placed, c->Vector(c->UnknownDim()));
    c->set_output(placed + num_placed, c->Vector(2));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("FusedEmbeddingColumnKeys")
    .Input("values: Tvalues")
    .Input("row_splits: num_ragged * int64")
    .Output("keys: Tkeys")
    .Output("rows: Trows")
    .Output("dense_shapes: Trows")
    .Attr("Tvalues: list({int32, int64, string}) >= 1")
    .Attr("num_ragged: int >= 0")
    .Attr("Tkeys: list({int64}) >= 1")
    .Attr("Trows: list({int64}) >= 0")
    .Attr("layouts: list(string)")
    .Attr("kinds: list(string)")
    .Attr("num_buckets: list(int)")
    .Attr("default_keys: list(int)")
    .Attr("column_names: list(string) = []")
    .SetShapeFn(ColumnKeysShape)
    .Doc(R"doc(
Turns the features of a batch into the keys of their lookups, all columns in one op.

A dense feature holds a value in each place of a matrix; "" and -1 are places without one. In sparse
and ragged features every value counts.

values: of each column: dense `[num_rows]` or `[num_rows, width]`; sparse and ragged `[nnz]`.
row_splits: `[num_rows + 1]` of each ragged column.
keys: `[nnz]` key of each value.
rows: `[nnz]` row of each key, of each column that is dense or ragged, in their order.
dense_shapes: `[2]` num_rows and width of these columns; of a ragged one the width is 1.
num_ragged: number of ragged columns.
Tkeys: int64 for each column. Lists of types, as TensorFlow does not check sums of several numbers of
  outputs.
Trows: int64 for each column that is dense or ragged.
layouts: of each column: dense, sparse or ragged.
kinds: of each column: identity, the value itself, which is not a string; hash: the
  Fingerprint64 of a string, or of the decimal text of an integer, modulo the number of buckets.
num_buckets: of each column, >= 1.
default_keys: of each column: what values outside `[0, num_buckets)` become with the
  kind identity; negative: they stay.
column_names: what errors call each column; none: "column" and its number.
)doc");

}  // namespace fused_embedding
