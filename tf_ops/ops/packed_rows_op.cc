#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("FusedEmbeddingUnpackRows")
    .Input("rows: num_servers * dtype")
    .Input("part_sizes: int64")
    .Output("tables: num_tables * dtype")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("num_servers: int >= 1")
    .Attr("num_tables: int >= 1")
    .Attr("num_parts: list(int)")
    .Attr("part_servers: list(int)")
    .Attr("dims: list(int)")
    .SetShapeFn(UnpackRowsShape)
    .Doc(R"doc(
Rows of several tables, or gradients of them, that travelled in one message for each server.

rows: `[num_values]` of each server: the rows of its parts, one part after the other without gaps.
part_sizes: `[num of all parts]` rows of each part.
tables: `[num_rows, dim]` of each table, part after part.
num_tables: how many tables there are.
num_parts: of each table: how many parts it is divided into.
part_servers: the server of each part, table after table.
dims: values of a row of each table.
)doc");

}  // namespace fused_embedding
