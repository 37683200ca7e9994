#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status SetCombinedShapes(InferenceContext* c, int num_partitions, DimensionHandle num_rows) {
  DimensionHandle dim;
  TF_RETURN_IF_ERROR(MatricesOfOneWidth(c, 0, num_partitions, &dim));
  c->set_output(0, c->Matrix(num_rows, dim));
  c->set_output(1, c->Vector(num_rows));
  return absl::OkStatus();
}

absl::Status PostLookupShape(InferenceContext* c) {
  int num_partitions = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_partitions", &num_partitions));
  for (int p = 0; p < num_partitions; ++p) {
    ShapeHandle indices;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(num_partitions + p), 2, &indices));
  }
  DimensionHandle num_rows;
  TF_RETURN_IF_ERROR(NumRowsDim(c, 2 * num_partitions, &num_rows));
  return SetCombinedShapes(c, num_partitions, num_rows);
}

absl::Status PostLookupV2Shape(InferenceContext* c) {
  int num_partitions = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_partitions", &num_partitions));
  ShapeHandle indices, unique_idxs, weights;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(num_partitions + 2), 2, &indices));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(num_partitions + 4), 1, &unique_idxs));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(num_partitions + 5), 1, &weights));
  DimensionHandle num_rows;
  TF_RETURN_IF_ERROR(NumRowsDim(c, num_partitions + 1, &num_rows));
  bool rows_end_at_last_id = false;
  TF_RETURN_IF_ERROR(c->GetAttr("rows_end_at_last_id", &rows_end_at_last_id));
  return SetCombinedShapes(c, num_partitions, rows_end_at_last_id ? c->UnknownDim() : num_rows);
}

}  // namespace

REGISTER_OP("FusedEmbeddingSparsePostLookUp")
    .Input("emb_shards: num_partitions * T")
    .Input("partitioned_indices: num_partitions * int64")
    .Input("sp_dense_shape: int64")
    .Input("row_empty_and_invalid_flags: int32")
    .Input("partitioned_values: num_partitions * int64")
    .Input("partitioned_weights: num_weights * Tw")
    .Output("emb_vectors: T")
    .Output("feature_nums: int32")
    .Attr("T: {float, double, half, bfloat16}")
    .Attr("Tw: {float, double, half, bfloat16} = DT_FLOAT")
    .Attr("num_partitions: int >= 1 = 1")
    .Attr("num_weights: int >= 0 = 0")
    .Attr("partition_axis: int >= 0 = 0")
    .Attr("combiner: {'sqrtn', 'mean', 'sum'} = 'mean'")
    .Attr("max_norm: float = -1.0")
    .Attr("default_id: int = -1")
    .SetShapeFn(PostLookupShape)
    .Doc(R"doc(
Second half of the v1 lookup: combines the embeddings of each row.

emb_shards: `[n_p, dim]` embedding of each pair of each shard.
partitioned_indices: `[n_p, 2]` row and column of each pair.
sp_dense_shape: `[k]`, k >= 2; num_rows is the product of all but the last element.
row_empty_and_invalid_flags: `[num_rows + nnz]` of FusedEmbeddingSparsePreLookUp.
partitioned_values: `[n_p]` ids of each shard; not looked at.
partitioned_weights: `[n_p]` weight of each pair of each shard, or no tensors: all 1.
partition_axis: must be 0, the axis of the rows.
combiner: sum: sum(w e). mean: sum(w e) / sum(w). sqrtn: sum(w e) / sqrt(sum(w^2)).
max_norm: embeddings of a larger L2 norm are scaled down to it first; negative: off.
default_id: negative: a row flagged empty is zero. Else it is what its pairs say.
emb_vectors: `[num_rows, dim]` combined embeddings.
feature_nums: `[num_rows]` number of pairs of each row, 0 where a flagged row is made zero.
)doc");

REGISTER_OP("FusedEmbeddingSparsePostLookUpV2")
    .Input("emb_shards: num_partitions * T")
    .Input("partition_permutation: int32")
    .Input("sp_dense_shape: int64")
    .Input("indices_before_unique: int64")
    .Input("is_row_empty: bool")
    .Input("unique_idxs: int32")
    .Input("sp_weights_values: Tw")
    .Output("emb_vectors: T")
    .Output("feature_nums: int32")
    .Attr("T: {float, double, half, bfloat16}")
    .Attr("Tw: {float, double, half, bfloat16} = DT_FLOAT")
    .Attr("num_partitions: int >= 1 = 1")
    .Attr("fill_empty_row: bool = false")
    .Attr("default_id: int = -1")
    .Attr("partition_axis: int >= 0 = 0")
    .Attr("combiner: {'sqrtn', 'mean', 'sum'} = 'mean'")
    .Attr("max_norm: float = -1.0")
    .Attr("use_sparse_weights: bool = false")
    .Attr("rows_end_at_last_id: bool = false")
    .SetShapeFn(PostLookupV2Shape)
    .Doc(R"doc(
Last stage of the v2 lookup: combines the embeddings of the unique ids into one vector a row.

emb_shards: `[u_p, dim]` embedding of each unique id of each shard.
partition_permutation: `[u, 2]` shard and position of each unique id, a bijection; not looked at
  with one shard, where unique id j is row j.
sp_dense_shape: `[k]`, k >= 2; num_rows is the product of all but the last element.
indices_before_unique: `[m, 2]` row and column of each pair.
is_row_empty: `[num_rows]` rows that had no valid id; looked at with fill_empty_row and
  default_id < 0.
unique_idxs: `[m]` unique id of each pair, in `[0, u)`.
sp_weights_values: `[m]` weights; not looked at without `use_sparse_weights`.
fill_empty_row: whether empty rows were given a pair.
default_id: negative: with fill_empty_row, empty rows are zero.
partition_axis: must be 0, the axis of the rows.
combiner: sum: sum(w e). mean: sum(w e) / sum(w). sqrtn: sum(w e) / sqrt(sum(w^2)).
max_norm: embeddings of a larger L2 norm are scaled down to it first; negative: off.
use_sparse_weights: whether there are weights.
rows_end_at_last_id: whether num_rows is the last row of `indices_before_unique` + 1, whatever
  sp_dense_shape says, and decreasing rows are an error, as in tf.nn.embedding_lookup_sparse.
emb_vectors: `[num_rows, dim]` combined embeddings.
feature_nums: `[num_rows]` number of pairs of each row, 0 where an empty row is made zero.
)doc");

}  // namespace fused_embedding
