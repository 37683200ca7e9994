#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("FusedEmbeddingGroupLookup")
    .Input("tables: num_tables * T")
    .Input("sp_values: Tids")
    .Input("sp_indices: num_columns * int64")
    .Input("sp_dense_shapes: num_columns * int64")
    .Input("sp_weights: Tweights")
    .Output("combined: num_outputs * T")
    .Attr("T: {float, double, half, bfloat16}")
    .Attr("Tids: list({int32, int64}) >= 1")
    .Attr("Tweights: list({float, double, half, bfloat16}) >= 0")
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
    .SetShapeFn(GroupLookupShape)
    .Doc(R"doc(
Sparse lookups of several columns in one op: from ids to combined rows, tables being tensors.

A column gets what PruneInvalidAndFillEmptyRows, a gather and
FusedEmbeddingSparsePostLookUpV2 would give it.

tables: tables `[num_rows_of_table, ...]`; a row is used as if it were flat, of `dim` values.
sp_values: `[nnz]` ids of each column.
sp_indices: `[nnz, 2]` row and column of each id, or `[nnz]` its row; rows in any order.
sp_dense_shapes: `[k]`, k >= 2; num_rows is the product of all but the last element.
sp_weights: `[nnz]` weights of the columns that have some.
combined: one output: `[num_rows, sum of dims]`, the columns side by side. As many as columns:
  `[num_rows, dim]` of each.
table_of_column: which of the tables a column reads.
weighted_columns: the column of each of `sp_weights`, increasing.
combiners: of each column. sum: sum(w e). mean: sum(w e) / sum(w). sqrtn: sum(w e) / sqrt(sum(w^2)).
max_norms: of each column: embeddings of a larger L2 norm are scaled down to it first; negative: off.
default_ids: of each column: id of rows without ids, with weight 1; negative: those rows are zero.
prune: drop id < 0, and not (weight > 0) unless the combiner is sum.
fill_empty_row: whether rows without ids get a default id at all.
column_names: what errors call each column; none, or empty: "column" and its number.
num_outputs: 1, or the number of columns.
)doc");

REGISTER_OP("FusedEmbeddingResourceGroupLookup")
    .Input("resources: num_tables * resource")
    .Input("sp_values: Tids")
    .Input("sp_indices: num_columns * int64")
    .Input("sp_dense_shapes: num_columns * int64")
    .Input("sp_weights: Tweights")
    .Output("combined: num_outputs * dtype")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("Tids: list({int32, int64}) >= 1")
    .Attr("Tweights: list({float, double, half, bfloat16}) >= 0")
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
    .Attr("table_shapes: list(shape) = []")
    .SetShapeFn(GroupLookupShape)
    .Doc(R"doc(
Sparse lookups of several columns in one op: from ids to combined rows, tables being variables.

The variables are read in place, each under its lock. A column gets what PruneInvalidAndFillEmptyRows, a gather and
FusedEmbeddingSparsePostLookUpV2 would give it.

resources: handles of variables `[num_rows_of_table, ...]`, whose rows are used as if flat, of `dim`
  values.
sp_values: `[nnz]` ids of each column.
sp_indices: `[nnz, 2]` row and column of each id, or `[nnz]` its row; rows in any order.
sp_dense_shapes: `[k]`, k >= 2; num_rows is the product of all but the last element.
sp_weights: `[nnz]` weights of the columns that have some.
combined: one output: `[num_rows, sum of dims]`, the columns side by side. As many as columns:
  `[num_rows, dim]` of each.
dtype: type of the variables.
table_of_column: which of the tables a column reads.
weighted_columns: the column of each of `sp_weights`, increasing.
combiners: of each column. sum: sum(w e). mean: sum(w e) / sum(w). sqrtn: sum(w e) / sqrt(sum(w^2)).
max_norms: of each column: embeddings of a larger L2 norm are scaled down to it first; negative: off.
default_ids: of each column: id of rows without ids, with weight 1; negative: those rows are zero.
prune: drop id < 0, and not (weight > 0) unless the combiner is sum.
fill_empty_row: whether rows without ids get a default id at all.
column_names: what errors call each column; none, or empty: "column" and its number.
num_outputs: 1, or the number of columns.
table_shapes: static shapes of the variables, where known: the gradient need not ask for them then.
)doc");

}  // namespace fused_embedding
