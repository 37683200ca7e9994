#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status PruneAndFillShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckSparseInputs(c, 0));
  ShapeHandle weights;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 1, &weights));
  DimensionHandle num_rows;
  TF_RETURN_IF_ERROR(NumRowsDim(c, 2, &num_rows));
  bool fill = false, prune = false;
  TF_RETURN_IF_ERROR(c->GetAttr("fill_empty_row", &fill));
  TF_RETURN_IF_ERROR(c->GetAttr("prune", &prune));
  const DimensionHandle nnz_out = fill || prune ? c->UnknownDim() : c->Dim(c->input(0), 0);
  c->set_output(0, c->Vector(nnz_out));
  c->set_output(1, c->Matrix(nnz_out, 2));
  c->set_output(2, c->UnknownShapeOfRank(1));
  c->set_output(3, c->Vector(num_rows));
  return absl::OkStatus();
}

absl::Status PruneAndFillGradShape(InferenceContext* c) {
  ShapeHandle values, weights, grad;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &values));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &weights));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &grad));
  TF_RETURN_IF_ERROR(c->Merge(values, weights, &weights));
  c->set_output(0, weights);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("PruneInvalidAndFillEmptyRows")
    .Input("sp_values: int64")
    .Input("sp_indices: int64")
    .Input("sp_dense_shape: int64")
    .Input("sp_weights_values: Tw")
    .Output("sp_values_out: int64")
    .Output("sp_indices_out: int64")
    .Output("sp_weights_values_out: Tw")
    .Output("is_row_empty: bool")
    .Attr("fill_empty_row: bool = false")
    .Attr("prune: bool = false")
    .Attr("default_id: int = -1")
    .Attr("use_sparse_weights: bool = false")
    .Attr("prune_sparse_weights: bool = false")
    .Attr("default_weight: float = 1.0")
    .Attr("Tw: {float, double, half, bfloat16} = DT_FLOAT")
    .Attr("column_name: string = ''")
    .SetShapeFn(PruneAndFillShape)
    .Doc(R"doc(
Drops invalid ids, then gives each empty row the default id.

Kept pairs stay in input order; the pairs of filled rows follow in ascending row order, with column
0. Rows may come in any order and columns are not looked at. An output that equals its input is the
input, not a copy.

sp_values: `[nnz]` ids; a negative id is invalid.
sp_indices: `[nnz, 2]` row and column of each id, rows in `[0, num_rows)`.
sp_dense_shape: `[k]`, k >= 2; num_rows is the product of all but the last element.
sp_weights_values: `[nnz]` weights; not looked at without `use_sparse_weights`.
fill_empty_row: whether a row without a valid id gets one pair (row, 0) with the default id.
prune: whether invalid ids are dropped.
default_id: id of a filled row; a negative one stands for id 0.
use_sparse_weights: whether there are weights.
prune_sparse_weights: whether `prune` drops ids with not (weight > 0) as well.
default_weight: weight of a filled row.
column_name: what errors call the lookup that this is part of.
sp_values_out: `[m]` kept ids, then default ids.
sp_indices_out: `[m, 2]` row and column of each id.
sp_weights_values_out: `[m]` weight of each id; the input without `use_sparse_weights`.
is_row_empty: `[num_rows]` whether the row had no valid id.
)doc");

REGISTER_OP("PruneInvalidAndFillEmptyRowsGrad")
    .Input("sp_values: int64")
    .Input("sp_weights_values: Tw")
    .Input("grad: Tw")
    .Output("sp_weights_grad: Tw")
    .Attr("prune: bool = false")
    .Attr("prune_sparse_weights: bool = false")
    .Attr("Tw: {float, double, half, bfloat16}")
    .SetShapeFn(PruneAndFillGradShape)
    .Doc(R"doc(
Gradient of PruneInvalidAndFillEmptyRows with respect to its weights.

sp_values: `[nnz]` ids of the forward op.
sp_weights_values: `[nnz]` weights of the forward op.
grad: `[m]` gradient of `sp_weights_values_out`.
prune: as in the forward op.
prune_sparse_weights: as in the forward op.
sp_weights_grad: `[nnz]` the gradient of each kept weight, 0 for the others.
)doc");

}  // namespace fused_embedding
