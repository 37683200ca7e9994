#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Input 0 is top_grad; the shards follow, and each gradient has its shard's shape.
absl::Status GradShardsShape(InferenceContext* c) {
  int num_partitions = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_partitions", &num_partitions));
  ShapeHandle top_grad;
  DimensionHandle dim;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &top_grad));
  TF_RETURN_IF_ERROR(MatricesOfOneWidth(c, 1, num_partitions, &dim));
  TF_RETURN_IF_ERROR(c->Merge(dim, c->Dim(top_grad, 1), &dim));
  for (int p = 0; p < num_partitions; ++p) c->set_output(p, c->input(1 + p));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("FusedEmbeddingSparsePostLookUpGrad")
    .Input("top_grad: T")
    .Input("emb_shards: num_partitions * T")
    .Input("partitioned_indices: num_partitions * int64")
    .Input("feature_nums: int32")
    .Input("row_empty_and_invalid_flags: int32")
    .Input("partitioned_weights: num_weights * Tw")
    .Output("grad_shards: num_partitions * T")
    .Attr("T: {float, double, half, bfloat16}")
    .Attr("Tw: {float, double, half, bfloat16} = DT_FLOAT")
    // Without a default: TensorFlow cannot load a SavedModel from which it stripped it.
    .Attr("num_partitions: int >= 1")
    .Attr("num_weights: int >= 0 = 0")
    .Attr("partition_axis: int >= 0 = 0")
    .Attr("combiner: {'sqrtn', 'mean', 'sum'} = 'mean'")
    .Attr("max_norm: float = -1.0")
    .Attr("default_id: int = -1")
    .SetShapeFn(GradShardsShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingSparsePostLookUp, one row per pair.

The derivative of max_norm includes its projection term. Attrs as in the forward op.

top_grad: `[num_rows, dim]` gradient of emb_vectors.
emb_shards: `[n_p, dim]` as in the forward op.
partitioned_indices: `[n_p, 2]` as in the forward op.
feature_nums: `[num_rows]` of the forward op.
row_empty_and_invalid_flags: `[num_rows + nnz]` as in the forward op.
partitioned_weights: `[n_p]` each, or no tensors, as in the forward op.
grad_shards: `[n_p, dim]` gradient of each embedding; duplicates of an id are not merged.
)doc");

REGISTER_OP("FusedEmbeddingSparsePostLookUpV2Grad")
    .Input("top_grad: T")
    .Input("emb_shards: num_partitions * T")
    .Input("partition_permutation: int32")
    .Input("feature_nums: int32")
    .Input("indices_before_unique: int64")
    .Input("unique_idxs: int32")
    .Input("is_row_empty: bool")
    .Input("sp_weights_values: Tw")
    .Output("grad_shards: num_partitions * T")
    .Attr("T: {float, double, half, bfloat16}")
    .Attr("Tw: {float, double, half, bfloat16} = DT_FLOAT")
    // Without a default: TensorFlow cannot load a SavedModel from which it stripped it.
    .Attr("num_partitions: int >= 1")
    .Attr("fill_empty_row: bool = false")
    .Attr("default_id: int = -1")
    .Attr("partition_axis: int >= 0 = 0")
    .Attr("combiner: {'sqrtn', 'mean', 'sum'} = 'mean'")
    .Attr("max_norm: float = -1.0")
    .Attr("use_sparse_weights: bool = false")
    .SetShapeFn(GradShardsShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingSparsePostLookUpV2, one row per unique id.

The derivative of max_norm includes its projection term. Occurrences are added in input order,
so the result is the same for any number of threads. Attrs as in the forward op.

top_grad: `[num_rows, dim]` gradient of emb_vectors.
emb_shards: `[u_p, dim]` as in the forward op.
partition_permutation: `[u, 2]` as in the forward op.
feature_nums: `[num_rows]` of the forward op.
indices_before_unique: `[m, 2]` as in the forward op.
unique_idxs: `[m]` as in the forward op.
is_row_empty: `[num_rows]` as in the forward op.
sp_weights_values: `[m]` as in the forward op.
grad_shards: `[u_p, dim]` gradient of each embedding.
)doc");

}  // namespace fused_embedding
