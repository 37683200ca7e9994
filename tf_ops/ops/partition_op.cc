#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status PartitionShape(InferenceContext* c) {
  ShapeHandle ids;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &ids));
  const int num_partitions = c->num_inputs() - 1;
  for (int p = 0; p < num_partitions; ++p) {
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(1 + p), 1, &shape));
    c->set_output(p, c->Vector(c->UnknownDim()));
  }
  c->set_output(num_partitions, c->Matrix(c->Dim(ids, 0), 2));
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("PartitionWithPermutation")
    .Input("input: int64")
    .Input("partition_shapes: num_partitions * int64")
    .Output("partitioned_values: num_partitions * int64")
    .Output("partition_permutation: int32")
    .Attr("num_partitions: int >= 1")
    .Attr("partition_axis: int >= 0 = 0")
    .Attr("partition_strategy: {'div', 'mod', 'mod_ev', 'hash'} = 'div'")
    .Attr("column_name: string = ''")
    .SetShapeFn(PartitionShape)
    .Doc(R"doc(
Sends each id to the shard that holds its row.

An id that no shard holds is an error. Inside a shard the input order is kept.

input: `[n]` ids, usually unique ones.
partition_shapes: shape `[rows, dim]` of each shard; only rows count,
  and mod_ev and hash ignore them.
partition_axis: must be 0, the axis of the rows.
partition_strategy: div: shards hold consecutive ranges of ids, by their real sizes. mod: shard
  id mod P, local id / P. mod_ev: shard id mod 1000 mod P, local id. hash: shard Mix64(id) mod P,
  local id.
column_name: what errors call the lookup that this is part of.
partitioned_values: `[n_p]` ids of each shard, as rows of that shard.
partition_permutation: `[n, 2]` shard of each id, and its position in that shard's values.
)doc");

}  // namespace fused_embedding
