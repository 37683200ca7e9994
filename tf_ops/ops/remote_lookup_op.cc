#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_registration.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("FusedEmbeddingRemoteLookup")
    .Input("rows: num_servers * dtype")
    .FE_GROUP_INPUTS()
    .Input("part_sizes: int64")
    .Input("default_positions: int32")
    .Output("combined: num_outputs * dtype")
    .FE_GROUP_COLUMN_ATTRS("dtype", "0")
    .FE_GROUP_FLAG_ATTRS()
    .Attr("num_servers: int >= 1")
    .Attr("num_parts: list(int)")
    .Attr("part_servers: list(int)")
    .Attr("dims: list(int)")
    .SetShapeFn(RemoteLookupShape)
    .Doc(R"doc(
Combined rows of several columns, of the rows that servers sent: see FusedEmbeddingRemoteKeys.

rows: `[num_values]` what each server sent.
sp_values: `[nnz]` output positions of FusedEmbeddingRemoteKeys, of each column.
part_sizes: its output.
default_positions: its output; they stand for default_ids and fill_empty_row.
combined: one output: `[num_rows, sum of dims]`, the columns side by side. As many as columns:
  `[num_rows, dim]` of each.
num_tables: how many tables there are.
dtype: type of the tables' values.
default_ids: unread: default_positions say what fills rows.
num_parts: of each table: how many parts it is divided into.
part_servers: the server of each part, table after table.
dims: values of a row of each table.
)doc" FE_GROUP_INPUTS_DOC FE_GROUP_ATTRS_DOC);

REGISTER_OP("FusedEmbeddingRemoteLookupGrad")
    .Input("combined_grads: num_outputs * dtype")
    .Input("rows: num_servers * dtype")
    .FE_GROUP_INPUTS()
    .Input("part_sizes: int64")
    .Input("default_positions: int32")
    .Output("rows_grads: num_servers * dtype")
    .FE_GROUP_COLUMN_ATTRS("dtype", "0")
    .FE_GROUP_FLAG_ATTRS()
    .Attr("num_servers: int >= 1")
    .Attr("num_parts: list(int)")
    .Attr("part_servers: list(int)")
    .Attr("dims: list(int)")
    .SetShapeFn(RemoteLookupGradShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingRemoteLookup with respect to `rows`: one message for each server.

Attrs as in the forward op. The gradient with respect to weights is
FusedEmbeddingGroupLookupWeightsGrad's, of the tables of FusedEmbeddingUnpackRows.

combined_grads: gradients of combined.
rows: `[num_values]` of each server.
sp_values: `[nnz]` positions of each column.
part_sizes: keys of each part.
default_positions: `[num_columns]`.
rows_grads: `[num_values]` gradients of `rows`.
)doc" FE_GROUP_INPUTS_DOC);

}  // namespace fused_embedding
