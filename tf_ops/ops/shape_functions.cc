#include "tf_ops/ops/shape_functions.h"

#include "tensorflow/core/framework/op.h"

namespace fused_embedding {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status NumRowsDim(InferenceContext* c, int dense_shape_index, DimensionHandle* num_rows) {
  ShapeHandle dense_shape;
  TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(dense_shape_index, &dense_shape));
  *num_rows = c->UnknownDim();
  if (!c->RankKnown(dense_shape)) return absl::OkStatus();
  if (c->Rank(dense_shape) < 2) {
    return absl::InvalidArgumentError(
        "sp_dense_shape must have at least two elements: the number of rows, and a width");
  }
  DimensionHandle product = c->MakeDim(1);
  for (int i = 0; i + 1 < c->Rank(dense_shape); ++i) {
    TF_RETURN_IF_ERROR(c->Multiply(product, c->Dim(dense_shape, i), &product));
  }
  *num_rows = product;
  return absl::OkStatus();
}

absl::Status MatricesOfOneWidth(InferenceContext* c, int start, int count, DimensionHandle* width) {
  *width = c->UnknownDim();
  for (int i = start; i < start + count; ++i) {
    ShapeHandle matrix;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 2, &matrix));
    TF_RETURN_IF_ERROR(c->Merge(*width, c->Dim(matrix, 1), width));
  }
  return absl::OkStatus();
}

absl::Status CheckSparseInputs(InferenceContext* c, int start) {
  ShapeHandle values, indices, dense_shape;
  DimensionHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(start), 1, &values));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(start + 1), 2, &indices));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(start + 2), 1, &dense_shape));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(values, 0), c->Dim(indices, 0), &unused));
  return c->WithValue(c->Dim(indices, 1), 2, &unused);
}

}  // namespace fused_embedding
