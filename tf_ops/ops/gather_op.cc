#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeAndType;
using tensorflow::shape_inference::ShapeHandle;

// `[n]` ids into a table `[rows, ...]` give `[n, dim]`, dim being the product of the other sizes.
absl::Status RowsShape(InferenceContext* c, ShapeHandle table) {
  ShapeHandle ids, rows_first, row;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &ids));
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(table, 1, &rows_first));
  DimensionHandle dim = c->UnknownDim();
  if (c->RankKnown(rows_first)) {
    dim = c->MakeDim(1);
    for (int i = 1; i < c->Rank(rows_first); ++i) {
      TF_RETURN_IF_ERROR(c->Multiply(dim, c->Dim(rows_first, i), &dim));
    }
  }
  c->set_output(0, c->Matrix(c->Dim(ids, 0), dim));
  return absl::OkStatus();
}

absl::Status GatherShape(InferenceContext* c) { return RowsShape(c, c->input(0)); }

absl::Status ResourceGatherShape(InferenceContext* c) {
  std::vector<ShapeAndType> table;
  TF_RETURN_IF_ERROR(tensorflow::shape_inference::ValidateVariableResourceHandle(c, &table));
  return RowsShape(c, table[0].shape);
}

}  // namespace

REGISTER_OP("FusedEmbeddingGather")
    .Input("params: T")
    .Input("ids: Tid")
    .Output("rows: T")
    .Attr("T: {float, double, half, bfloat16}")
    .Attr("Tid: {int32, int64}")
    .Attr("ids_are_unique: bool = false")
    .Attr("column_name: string = ''")
    .SetShapeFn(GatherShape)
    .Doc(R"doc(
Rows of a table that is a tensor.

params: `[num_rows, ...]` table.
ids: `[n]` rows to read, each in `[0, num_rows)`.
ids_are_unique: promise that no id occurs twice, which saves its gradient from merging duplicates.
column_name: what errors call the lookup that this is part of.
rows: `[n, dim]`, dim being the product of the table's other sizes.
)doc");

REGISTER_OP("FusedEmbeddingResourceGather")
    .Input("resource: resource")
    .Input("ids: Tid")
    .Output("rows: dtype")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("Tid: {int32, int64}")
    .Attr("ids_are_unique: bool = false")
    .Attr("params_shape: shape = { unknown_rank: true }")
    .Attr("column_name: string = ''")
    .SetShapeFn(ResourceGatherShape)
    .Doc(R"doc(
Rows of a table that is a resource variable, read in place.

resource: handle of a variable `[num_rows, ...]`.
ids: `[n]` rows to read, each in `[0, num_rows)`.
ids_are_unique: promise that no id occurs twice, which saves its gradient from merging duplicates.
dtype: type of the variable.
params_shape: static shape of the variable, where known: its gradient need not ask for it then.
column_name: what errors call the lookup that this is part of.
rows: `[n, dim]`, dim being the product of the table's other sizes.
)doc");

}  // namespace fused_embedding
