#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The gradients have the shapes of the last inputs, the weights.
absl::Status WeightsGradShape(InferenceContext* c) {
  const int first_weights = c->num_inputs() - c->num_outputs();
  ShapeHandle top_grad, weights;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &top_grad));
  for (int i = 0; i < c->num_outputs(); ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(first_weights + i), 1, &weights));
    c->set_output(i, weights);
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("FusedEmbeddingSparsePostLookUpWeightsGrad")
    .Input("top_grad: T")
    .Input("emb_shards: num_partitions * T")
    .Input("partitioned_indices: num_partitions * int64")
    .Input("row_empty_and_invalid_flags: int32")
    .Input("partitioned_weights: num_partitions * Tw")
    .Output("weights_grad: num_partitions * Tw")
    .Attr("T: {float, double, half, bfloat16}")
    .Attr("Tw: {float, double, half, bfloat16}")
    .Attr("num_partitions: int >= 1")
    .Attr("combiner: {'sqrtn', 'mean', 'sum'} = 'mean'")
    .Attr("max_norm: float = -1.0")
    .Attr("default_id: int = -1")
    .SetShapeFn(WeightsGradShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingSparsePostLookUp with respect to its weights.

Attrs as in the forward op.

top_grad: `[num_rows, dim]` gradient of emb_vectors.
emb_shards: `[n_p, dim]` as in the forward op.
partitioned_indices: `[n_p, 2]` as in the forward op.
row_empty_and_invalid_flags: `[num_rows + nnz]` as in the forward op.
partitioned_weights: `[n_p]` as in the forward op.
weights_grad: `[n_p]` gradient of each weight.
)doc");

REGISTER_OP("FusedEmbeddingSparsePostLookUpV2WeightsGrad")
    .Input("top_grad: T")
    .Input("emb_shards: num_partitions * T")
    .Input("partition_permutation: int32")
    .Input("indices_before_unique: int64")
    .Input("is_row_empty: bool")
    .Input("unique_idxs: int32")
    .Input("sp_weights_values: Tw")
    .Output("weights_grad: Tw")
    .Attr("T: {float, double, half, bfloat16}")
    .Attr("Tw: {float, double, half, bfloat16}")
    .Attr("num_partitions: int >= 1")
    .Attr("fill_empty_row: bool = false")
    .Attr("default_id: int = -1")
    .Attr("combiner: {'sqrtn', 'mean', 'sum'} = 'mean'")
    .Attr("max_norm: float = -1.0")
    .SetShapeFn(WeightsGradShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingSparsePostLookUpV2 with respect to its weights.

Attrs as in the forward op.

top_grad: `[num_rows, dim]` gradient of emb_vectors.
emb_shards: `[u_p, dim]` as in the forward op.
partition_permutation: `[u, 2]` as in the forward op.
indices_before_unique: `[m, 2]` as in the forward op.
is_row_empty: `[num_rows]` as in the forward op.
unique_idxs: `[m]` as in the forward op.
sp_weights_values: `[m]` as in the forward op.
weights_grad: `[m]` gradient of each weight.
)doc");

}  // namespace fused_embedding
