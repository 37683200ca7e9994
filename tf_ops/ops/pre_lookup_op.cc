#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status PreLookupShape(InferenceContext* c) {
  int num_partitions = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_partitions", &num_partitions));
  for (int p = 0; p < num_partitions; ++p) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(p), 1, &shape));
    const DimensionHandle num_pairs = c->UnknownDim();
    c->set_output(p, c->Vector(num_pairs));
    c->set_output(num_partitions + p, c->Matrix(num_pairs, 2));
  }
  TF_RETURN_IF_ERROR(CheckSparseInputs(c, num_partitions));
  DimensionHandle num_rows, num_flags;
  TF_RETURN_IF_ERROR(NumRowsDim(c, num_partitions + 2, &num_rows));
  TF_RETURN_IF_ERROR(c->Add(num_rows, c->Dim(c->input(num_partitions), 0), &num_flags));
  c->set_output(2 * num_partitions, c->Vector(num_flags));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("FusedEmbeddingSparsePreLookUp")
    .Input("partition_shapes: num_partitions * int64")
    .Input("sp_values: int64")
    .Input("sp_indices: int64")
    .Input("sp_dense_shape: int64")
    .Output("partitioned_values: num_partitions * int64")
    .Output("partitioned_indices: num_partitions * int64")
    .Output("row_empty_and_invalid_flags: int32")
    // Without a default: TensorFlow cannot load a SavedModel from which it stripped it.
    .Attr("num_partitions: int >= 1")
    .Attr("partition_axis: int >= 0 = 0")
    .Attr("fill_empty_row: bool = false")
    .Attr("prune_invalid_id: bool = false")
    .Attr("default_id: int = -1")
    .Attr("partition_strategy: {'div', 'mod', 'mod_ev', 'hash'} = 'div'")
    .Attr("column_name: string = ''")
    .SetShapeFn(PreLookupShape)
    .Doc(R"doc(
First half of the v1 lookup: prunes, fills, and sends each pair to the shard of its id.

partition_shapes: shape `[rows, dim]` of each shard.
sp_values: `[nnz]` ids; a negative id is invalid.
sp_indices: `[nnz, 2]` row and column of each id, rows in `[0, num_rows)`.
sp_dense_shape: `[k]`, k >= 2; num_rows is the product of all but the last element.
partition_axis: must be 0, the axis of the rows.
fill_empty_row: whether a row without a valid id gets one pair (row, 0) with the default id.
prune_invalid_id: whether invalid ids are dropped; those kept belong to no shard, an error.
default_id: id of a filled row; a negative one stands for id 0.
partition_strategy: as in PartitionWithPermutation.
column_name: what errors call the lookup that this is part of.
partitioned_values: `[n_p]` ids of each shard, as rows of that shard, in input order;
  filled rows last.
partitioned_indices: `[n_p, 2]` row and column of each id.
row_empty_and_invalid_flags: `[num_rows + nnz]`: 1 for a row without a valid id, else 0; then
  1 for a pair with a valid id, else 0.
)doc");

}  // namespace fused_embedding
