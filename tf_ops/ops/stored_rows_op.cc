#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_registration.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("FusedEmbeddingStoredRowsGroupLookup")
    .Input("resources: num_tables * resource")
    .FE_GROUP_INPUTS()
    .Output("combined: num_outputs * dtype")
    .FE_GROUP_ATTRS("dtype", "0")
    .Attr("formats: list(string)")
    .Attr("dims: list(int)")
    .SetShapeFn(StoredRowsShape)
    .Doc(R"doc(
Sparse lookups of several columns in one op, tables being variables of rows in fewer bytes.

The variables are read in place, each under its lock; rows are decoded when they are added up. A
column gets what FusedEmbeddingResourceGroupLookup would give it with decoded rows. On the CPU.

resources: handles of variables `[num_rows_of_table, bytes of a row]`, uint8, or
  `[num_rows_of_table, dim]`, bfloat16.
sp_values: `[nnz]` ids of each column.
combined: one output: `[num_rows, sum of dims]`, the columns side by side. As many as columns:
  `[num_rows, dim]` of each.
dtype: type of the results: float.
default_ids: of each column: id of rows without ids, with weight 1; negative: those rows are zero.
formats: of each table. int8: dim quants, then scale and bias, float. int4: (dim + 1) / 2 bytes, of
  which byte i has the quants of values i (low half) and i + (dim + 1) / 2; then scale and bias,
  half. bfloat16: the values. A value is quant * scale + bias.
dims: number of values in a row of each table.
)doc" FE_GROUP_INPUTS_DOC FE_GROUP_ATTRS_DOC);

}  // namespace fused_embedding
