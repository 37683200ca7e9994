#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_registration.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("FusedEmbeddingGroupLookup")
    .Input("tables: num_tables * T")
    .FE_GROUP_INPUTS()
    .Output("combined: num_outputs * T")
    .FE_GROUP_ATTRS("T", "0")
    .SetShapeFn(GroupLookupShape)
    .Doc(R"doc(
Sparse lookups of several columns in one op: from ids to combined rows, tables being tensors.

A column gets what PruneInvalidAndFillEmptyRows, a gather and
FusedEmbeddingSparsePostLookUpV2 would give it.

tables: tables `[num_rows_of_table, ...]`; a row is used as if it were flat, of `dim` values.
sp_values: `[nnz]` ids of each column.
combined: one output: `[num_rows, sum of dims]`, the columns side by side. As many as columns:
  `[num_rows, dim]` of each.
default_ids: of each column: id of rows without ids, with weight 1; negative: those rows are zero.
)doc" FE_GROUP_INPUTS_DOC FE_GROUP_ATTRS_DOC);

REGISTER_OP("FusedEmbeddingResourceGroupLookup")
    .Input("resources: num_tables * resource")
    .FE_GROUP_INPUTS()
    .Output("combined: num_outputs * dtype")
    .FE_GROUP_ATTRS("dtype", "0")
    .Attr("table_shapes: list(shape) = []")
    .SetShapeFn(GroupLookupShape)
    .Doc(R"doc(
Sparse lookups of several columns in one op: from ids to combined rows, tables being variables.

The variables are read in place, each under its lock. A column gets what PruneInvalidAndFillEmptyRows, a gather and
FusedEmbeddingSparsePostLookUpV2 would give it.

resources: handles of variables `[num_rows_of_table, ...]`, whose rows are used as if flat, of `dim`
  values.
sp_values: `[nnz]` ids of each column.
combined: one output: `[num_rows, sum of dims]`, the columns side by side. As many as columns:
  `[num_rows, dim]` of each.
dtype: type of the variables.
default_ids: of each column: id of rows without ids, with weight 1; negative: those rows are zero.
table_shapes: static shapes of the variables, where known: the gradient need not ask for them then.
)doc" FE_GROUP_INPUTS_DOC FE_GROUP_ATTRS_DOC);

}  // namespace fused_embedding
