#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_registration.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("EmbeddingVariableGroupLookup")
    .Input("resources: num_tables * resource")
    .FE_GROUP_INPUTS()
    .Input("step: int64")
    .Output("combined: num_outputs * dtype")
    .Output("keys: num_tables * int64")
    .Output("handles: num_tables * int64")
    .Output("rows: num_tables * dtype")
    .Output("positions: num_columns * int32")
    .Output("default_positions: int32")
    .FE_GROUP_COLUMN_ATTRS("dtype", "0")
    .Attr("insert: bool")
    .FE_GROUP_FLAG_ATTRS()
    .Attr("are_inserted: list(bool) = []")
    .SetIsStateful()
    .SetShapeFn(TableGroupLookupShape)
    .Doc(R"doc(
Sparse lookups of several columns in one op: from ids to combined rows, tables having no vocabulary.

A column gets what PruneInvalidAndFillEmptyRows, UniqueWithCountsV3, EmbeddingVariableLookup and
FusedEmbeddingSparsePostLookUpV2 would give it. Columns of one table look it up once, with what all
of them count.

resources: handles of the tables.
sp_values: `[nnz]` ids of each column, which are keys: any value that is not pruned is legal.
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
default_ids: of each column: key of rows without ids, with weight 1, which is no occurrence of it;
  negative: those rows are zero, and no key is looked up for them.
insert: whether keys are counted, admitted and inserted (training), or nothing is changed.
are_inserted: `insert` of each table where tables differ, as those do whose keys
  EmbeddingVariableAdmit has inserted; none: `insert` for all.
)doc" FE_GROUP_INPUTS_DOC FE_GROUP_ATTRS_DOC);

}  // namespace fused_embedding
