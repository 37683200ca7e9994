#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/group_registration.h"
#include "tf_ops/ops/group_shapes.h"

namespace fused_embedding {

REGISTER_OP("FusedEmbeddingRemoteKeys")
    .FE_GROUP_INPUTS()
    .Input("step: int64")
    .Output("messages: num_servers * int64")
    .Output("part_sizes: int64")
    .Output("positions: num_columns * int32")
    .Output("default_positions: int32")
    .FE_GROUP_COLUMN_ATTRS("dtype", "0")
    .FE_GROUP_FLAG_ATTRS()
    .Attr("num_servers: int >= 1")
    .Attr("num_parts: list(int)")
    .Attr("part_rows: list(int)")
    .Attr("part_servers: list(int)")
    .Attr("partition_strategies: list(string)")
    .Attr("ids_are_keys: bool")
    .SetShapeFn(RemoteKeysShape)
    .Doc(R"doc(
What a lookup of several columns asks of the tables' servers: one message of keys for each server.

The first of the ops of a lookup in tables of other tasks, or in several parts. The servers' tasks
have FusedEmbeddingRemoteRows, FusedEmbeddingResourceRemoteRows or EmbeddingVariableRemoteRows; then
FusedEmbeddingRemoteLookup makes rows of the columns of what they send.

sp_values: `[nnz]` ids of each column.
step: version of the rows that are found or made; negative: each table's own step counter.
messages: to each server, `[num_words]`: the distinct keys of its parts, and where ids_are_keys how
  often each occurs. tf_ops/core/lookup/remote/key_message.h has the format.
part_sizes: `[num of all parts]` keys of each part.
positions: `[nnz]` for each column: where each id's row is in the rows of its table, part after part;
  -1: it was dropped.
default_positions: `[num_columns]` where the default id's row is; -1: no row needed it. -2 - p: the
  rows without ids are zero, and row p has a gradient of zeros for them.
dtype: type of the tables' values.
default_ids: of each column: id of rows without ids, with weight 1; negative: those rows are zero.
num_servers: how many messages there are.
num_tables: how many tables there are.
num_parts: of each table: how many parts it is divided into.
part_rows: rows of each part, table after table; mod_ev and hash ignore them.
part_servers: the server of each part.
partition_strategies: of each table, as in PartitionWithPermutation.
ids_are_keys: whether any id that is not pruned is legal, as in an EmbeddingVariable; else ids are
  rows of the table, which part_rows has.
)doc" FE_GROUP_INPUTS_DOC FE_GROUP_ATTRS_DOC);

}  // namespace fused_embedding
