#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("FusedEmbeddingGroupLookupWeightsGrad")
    .Input("combined_grads: num_outputs * T")
    .Input("tables: num_tables * T")
    .Input("sp_values: Tids")
    .Input("sp_indices: num_columns * int64")
    .Input("sp_dense_shapes: num_columns * int64")
    .Input("sp_weights: Tweights")
    .Output("weights_grad: Tweights")
    .Attr("T: {float, double, half, bfloat16}")
    .Attr("Tids: list({int32, int64}) >= 1")
    .Attr("Tweights: list({float, double, half, bfloat16}) >= 1")
    .Attr("num_tables: int >= 1")
    .Attr("num_columns: int >= 1")
    .Attr("num_outputs: int >= 1")
    .Attr("table_of_column: list(int)")
    .Attr("weighted_columns: list(int)")
    .Attr("combiners: list(string)")
    .Attr("max_norms: list(float)")
    .Attr("default_ids: list(int)")
    .Attr("prune: bool = true")
    .Attr("fill_empty_row: bool = true")
    .Attr("column_names: list(string) = []")
    .SetShapeFn(GroupLookupWeightsGradShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingGroupLookup with respect to its weights.

Attrs as in the forward op. The tables are read again.

combined_grads: gradients of combined.
tables: tables `[num_rows_of_table, ...]`; a row is used as if it were flat, of `dim` values.
sp_values: `[nnz]` ids of each column.
sp_indices: `[nnz, 2]` row and column of each id, or `[nnz]` its row; rows in any order.
sp_dense_shapes: `[k]`, k >= 2; num_rows is the product of all but the last element.
sp_weights: `[nnz]` weights of the columns that have some.
weights_grad: `[nnz]` gradient of each of `sp_weights`, 0 for ids that were dropped.
)doc");

REGISTER_OP("FusedEmbeddingResourceGroupLookupWeightsGrad")
    .Input("combined_grads: num_outputs * dtype")
    .Input("resources: num_tables * resource")
    .Input("sp_values: Tids")
    .Input("sp_indices: num_columns * int64")
    .Input("sp_dense_shapes: num_columns * int64")
    .Input("sp_weights: Tweights")
    .Output("weights_grad: Tweights")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("Tids: list({int32, int64}) >= 1")
    .Attr("Tweights: list({float, double, half, bfloat16}) >= 1")
    .Attr("num_tables: int >= 1")
    .Attr("num_columns: int >= 1")
    .Attr("num_outputs: int >= 1")
    .Attr("table_of_column: list(int)")
    .Attr("weighted_columns: list(int)")
    .Attr("combiners: list(string)")
    .Attr("max_norms: list(float)")
    .Attr("default_ids: list(int)")
    .Attr("prune: bool = true")
    .Attr("fill_empty_row: bool = true")
    .Attr("column_names: list(string) = []")
    .SetShapeFn(GroupLookupWeightsGradShape)
    .Doc(R"doc(
Gradient of FusedEmbeddingResourceGroupLookup with respect to its weights.

Attrs as in the forward op. The variables are read again.

combined_grads: gradients of combined.
resources: handles of variables `[num_rows_of_table, ...]`, whose rows are used as if flat, of `dim`
  values.
sp_values: `[nnz]` ids of each column.
sp_indices: `[nnz, 2]` row and column of each id, or `[nnz]` its row; rows in any order.
sp_dense_shapes: `[k]`, k >= 2; num_rows is the product of all but the last element.
sp_weights: `[nnz]` weights of the columns that have some.
weights_grad: `[nnz]` gradient of each of `sp_weights`, 0 for ids that were dropped.
)doc");

}  // namespace fused_embedding
