#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("FusedEmbeddingRemoteRows")
    .Input("tables: num_tables * dtype")
    .Input("message: int64")
    .Output("rows: dtype")
    .Output("part_sizes: int64")
    .Output("keys: num_tables * int64")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("num_tables: int >= 1")
    .Attr("dims: list(int)")
    .Attr("table_names: list(string) = []")
    .SetShapeFn(RemoteRowsShape)
    .Doc(R"doc(
The rows that a message of FusedEmbeddingRemoteKeys asks for, tables being tensors.

tables: tables `[num_rows, ...]`; a row is used as if it were flat, of `dim` values.
message: `[num_words]`, with as many parts as there are tables.
rows: `[num_values]` the rows of table after table, without gaps.
part_sizes: `[num_tables]` how many of each.
keys: `[num_rows]` which rows of each table.
dims: values of a row of each table.
table_names: what errors call each table; none: by its number.
)doc");

REGISTER_OP("FusedEmbeddingResourceRemoteRows")
    .Input("resources: num_tables * resource")
    .Input("message: int64")
    .Output("rows: dtype")
    .Output("part_sizes: int64")
    .Output("keys: num_tables * int64")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("num_tables: int >= 1")
    .Attr("dims: list(int)")
    .Attr("table_names: list(string) = []")
    .Attr("table_shapes: list(shape) = []")
    .SetIsStateful()
    .SetShapeFn(RemoteRowsShape)
    .Doc(R"doc(
The rows that a message of FusedEmbeddingRemoteKeys asks for, tables being variables.

The variables are read in place, each under its lock.

resources: handles of variables `[num_rows, ...]`, whose rows are used as if flat, of `dim` values.
message: `[num_words]`, with as many parts as there are tables.
rows: `[num_values]` the rows of table after table, without gaps.
part_sizes: `[num_tables]` how many of each.
keys: `[num_rows]` which rows of each table.
dtype: type of the variables.
dims: values of a row of each table.
table_names: what errors call each table; none: by its number.
table_shapes: static shapes of the variables, where known: the gradient need not ask for them then.
)doc");

REGISTER_OP("EmbeddingVariableRemoteRows")
    .Input("resources: num_tables * resource")
    .Input("message: int64")
    .Output("rows: dtype")
    .Output("part_sizes: int64")
    .Output("keys: num_tables * int64")
    .Output("handles: num_tables * int64")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("num_tables: int >= 1")
    .Attr("dims: list(int)")
    .Attr("table_names: list(string) = []")
    .Attr("insert: bool")
    .Attr("are_inserted: list(bool) = []")
    .SetIsStateful()
    .SetShapeFn(RemoteRowsShape)
    .Doc(R"doc(
The rows that a message of FusedEmbeddingRemoteKeys asks for, tables having no vocabulary.

resources: handles of the tables.
message: `[num_words]`, with as many parts as there are tables, and counts.
rows: `[num_values]` the rows of table after table, without gaps.
part_sizes: `[num_tables]` how many of each.
keys: `[num_keys]` of each table.
handles: `[num_keys]` where their rows are, for EmbeddingVariableApply; -1: nowhere.
dtype: type of the values.
dims: values of a row of each table.
table_names: what errors call each table; none: by its number.
insert: whether keys are counted, admitted and inserted (training), or nothing is changed.
are_inserted: `insert` of each table where tables differ; none: `insert` for all.
)doc");

}  // namespace fused_embedding
