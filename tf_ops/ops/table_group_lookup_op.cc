#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("EmbeddingVariableGroupLookup")
    .Input("resources: num_tables * resource")
    .Input("sp_values: Tids")
    .Input("sp_indices: num_columns * int64")
    .Input("sp_dense_shapes: num_columns * int64")
    .Input("sp_weights: Tweights")
    .Input("step: int64")
    .Output("combined: num_outputs * dtype")
    .Output("keys: num_tables * int64")
    .Output("handles: num_tables * int64")
    .Output("rows: num_tables * dtype")
    .Output("positions: num_columns * int32")
    .Output("default_positions: int32")
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
    .Attr("insert: bool")
    .Attr("prune: bool = true")
    .Attr("fill_empty_row: bool = true")
    .Attr("column_names: list(string) = []")
    .SetIsStateful()
    .SetShapeFn(TableGroupLookupShape)
    .Doc(R"doc(
Sparse lookups of several columns in one op: from ids to combined rows, tables having no vocabulary.

A column gets what PruneInvalidAndFillEmptyRows, UniqueWithCountsV3, EmbeddingVariableLookup and
FusedEmbeddingSparsePostLookUpV2 would give it. Columns of one table look it up once, with what all
of them count.

resources: handles of the tables.
sp_values: `[nnz]` ids of each column, which are keys: any value that is not pruned is legal.
sp_indices: `[nnz, 2]` row and column of each id, or `[nnz]` its row; rows in any order.
sp_dense_shapes: `[k]`, k >= 2; num_rows is the product of all but the last element.
sp_weights: `[nnz]` weights of the columns that have some.
step: version of the rows that are found or made; negative: each table's own step counter.
combined: one output: `[num_rows, sum of dims]`, the columns side by side. As many as columns:
  `[num_rows, dim]` of each.
keys: `[num_keys]` distinct keys of each table in the order of their first occurrence, column after
  column; a default id that is needed comes after its column's ids.
handles: `[num_keys]` where their rows are, for EmbeddingVariableApply; -1: nowhere.
rows: `[num_keys, dim]` what was read, for the gradient.
positions: `[nnz]` for each column: where in `keys` each id is; -1: it was dropped.
default_positions: `[num_columns]` where in `keys` the default id is; -1: no row needed it.
dtype: type of the values.
table_of_column: which of the tables a column reads.
weighted_columns: the column of each of `sp_weights`, increasing.
combiners: of each column. sum: sum(w e). mean: sum(w e) / sum(w). sqrtn: sum(w e) / sqrt(sum(w^2)).
max_norms: of each column: embeddings of a larger L2 norm are scaled down to it first; negative: off.
default_ids: of each column: key of rows without ids, with weight 1, which is no occurrence of it;
  negative: those rows are zero, and no key is looked up for them.
insert: whether keys are counted, admitted and inserted (training), or nothing is changed.
prune: drop id < 0, and not (weight > 0) unless the combiner is sum.
fill_empty_row: whether rows without ids get a default id at all.
column_names: what errors call each column; none, or empty: "column" and its number.
num_outputs: 1, or the number of columns.
)doc");

}  // namespace fused_embedding
