#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_registration.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("FusedEmbeddingGroupLookupGrad")
    .Input("combined_grads: num_outputs * T")
    .Input("tables: num_tables * T")
    .FE_GROUP_INPUTS()
    .Output("unique_ids: num_tables * int64")
    .Output("rows_grad: num_tables * T")
    .FE_GROUP_ATTRS("T", "0")
    .SetShapeFn(GroupLookupGradShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingGroupLookup with respect to its tables: one row per distinct id of a table.

Attrs as in the forward op. Where there is a max_norm, the tables are read again.

combined_grads: gradients of combined.
tables: tables `[num_rows_of_table, ...]`; a row is used as if it were flat, of `dim` values.
sp_values: `[nnz]` ids of each column.
unique_ids: `[num_unique]` distinct ids of each table in the order of their first occurrence, column
  after column. A column that makes empty rows zero, and has one, adds id 0 with a row of zeros.
rows_grad: `[num_unique, dim]` gradient of each of them.
)doc" FE_GROUP_INPUTS_DOC);

REGISTER_OP("FusedEmbeddingResourceGroupLookupGrad")
    .Input("combined_grads: num_outputs * dtype")
    .Input("resources: num_tables * resource")
    .FE_GROUP_INPUTS()
    .Output("unique_ids: num_tables * int64")
    .Output("rows_grad: num_tables * dtype")
    .FE_GROUP_ATTRS("dtype", "0")
    .SetShapeFn(GroupLookupGradShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingResourceGroupLookup with respect to its tables: one row per distinct id of a table.

Attrs as in the forward op. Where there is a max_norm, the variables are read again.

combined_grads: gradients of combined.
resources: handles of variables `[num_rows_of_table, ...]`, whose rows are used as if flat, of `dim`
  values.
sp_values: `[nnz]` ids of each column.
unique_ids: `[num_unique]` distinct ids of each table in the order of their first occurrence, column
  after column. A column that makes empty rows zero, and has one, adds id 0 with a row of zeros.
rows_grad: `[num_unique, dim]` gradient of each of them.
)doc" FE_GROUP_INPUTS_DOC);

REGISTER_OP("EmbeddingVariableGroupLookupGrad")
    .Input("combined_grads: num_outputs * T")
    .Input("tables: num_tables * T")
    .FE_GROUP_INPUTS()
    .Input("default_positions: int32")
    .Output("rows_grad: num_tables * T")
    .FE_GROUP_ATTRS("T", "0")
    .SetShapeFn(TableGroupLookupGradShape)
    .Doc(R"doc(
Gradient of EmbeddingVariableGroupLookup with respect to its tables: one row for each of its keys.

Attrs as in the forward op. default_positions stand for default_ids and fill_empty_row. The gradient
with respect to weights is FusedEmbeddingGroupLookupWeightsGrad's, of the same tables and sp_values,
without fill_empty_row.

combined_grads: gradients of combined.
tables: `[num_keys, dim]` output rows of the forward op, each of which some id reads.
sp_values: `[nnz]` output positions of the forward op.
default_positions: `[num_columns]` output of the forward op.
rows_grad: `[num_keys, dim]` gradient of each of `tables`.
)doc" FE_GROUP_INPUTS_DOC);

}  // namespace fused_embedding
