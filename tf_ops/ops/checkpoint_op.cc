#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status SaveShape(InferenceContext* c) {
  ShapeHandle path;
  return c->WithRank(c->input(1), 0, &path);
}

absl::Status SaveIncrementShape(InferenceContext* c) {
  ShapeHandle path, base_paths, link_paths;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &path));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &base_paths));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 1, &link_paths));
  return c->Merge(base_paths, link_paths, &base_paths);
}

absl::Status RestoreShape(InferenceContext* c) {
  ShapeHandle paths;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(1), 1, &paths));
  return c->WithRankAtMost(paths, 2, &paths);
}

absl::Status ReadRowsShape(InferenceContext* c) {
  ShapeHandle path;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &path));
  int64_t dim;
  TF_RETURN_IF_ERROR(c->GetAttr("embedding_dim", &dim));
  const auto num_keys = c->UnknownDim();
  c->set_output(0, c->Vector(num_keys));
  c->set_output(1, c->Matrix(num_keys, dim));
  c->set_output(2, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(3, c->Scalar());
  c->set_output(4, c->Scalar());
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("EmbeddingVariableSave")
    .Input("resource: resource")
    .Input("path: string")
    .Attr("as_one_file: bool = false")
    .SetIsStateful()
    .SetShapeFn(SaveShape)
    .Doc(R"doc(
Writes a table to a file, as a stream: extra memory is one shard. The file is whole or absent.

resource: handle of the table.
path: the file.
as_one_file: whether the rows of a table with a tier on an SSD are in that file as well. Else they
  are files of RocksDB's beside it, hard links of those that the table has: `PREFIX.data-e????-of-?????`
  for a path of that form, or with the path as PREFIX.
)doc");

REGISTER_OP("EmbeddingVariableSaveIncrement")
    .Input("resource: resource")
    .Input("path: string")
    .Input("base_paths: string")
    .Input("link_paths: string")
    .SetIsStateful()
    .SetShapeFn(SaveIncrementShape)
    .Doc(R"doc(
Writes a save of a series: the first has all of a table, each other one what changed since the one
before. The files of those are given other names, so that this save goes with its own files alone.

resource: handle of the table.
path: the file.
base_paths: `[k]` files of the save to continue, the first of the series first; `[0]`: this is the
  first. FailedPrecondition where the table does not know what changed since.
link_paths: `[k]` names that hard links of those get.
)doc");

REGISTER_OP("EmbeddingVariableReadRows")
    .Input("path: string")
    .Output("keys: int64")
    .Output("values: dtype")
    .Output("removed_keys: int64")
    .Output("is_incremental: bool")
    .Output("seed: int64")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("embedding_dim: int >= 1")
    .SetIsStateful()
    .SetShapeFn(ReadRowsShape)
    .Doc(R"doc(
Reads one file of a save: of an incremental one the rows that changed.

path: the file.
keys: `[n]`.
values: `[n, embedding_dim]`.
removed_keys: `[m]` keys that have no row after this save; some may have had none before.
is_incremental: whether the file holds changes, and not a whole table.
seed: of the table's initializer, as EmbeddingVariableSeed.
dtype: of the table.
embedding_dim: of the table.
)doc");

REGISTER_OP("EmbeddingVariableRestore")
    .Input("resource: resource")
    .Input("paths: string")
    .Attr("partition_index: int = 0")
    .Attr("num_partitions: int = 1")
    .Attr("partition_strategy: {'mod_ev', 'hash'} = 'hash'")
    .SetIsStateful()
    .SetShapeFn(RestoreShape)
    .Doc(R"doc(
Replaces a table's content by that of files of EmbeddingVariableSave or -SaveIncrement, which are
checked first.

resource: handle of the table.
paths: `[p]` files, one for each partition that was saved; or `[k, p]`, the saves of a series.
partition_index: only keys that belong to this partition are kept.
num_partitions: number of partitions of the variable.
partition_strategy: how keys belong to partitions.
)doc");

}  // namespace fused_embedding
