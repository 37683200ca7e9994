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

absl::Status RestoreShape(InferenceContext* c) {
  ShapeHandle paths;
  return c->WithRank(c->input(1), 1, &paths);
}

}  // namespace

REGISTER_OP("EmbeddingVariableSave")
    .Input("resource: resource")
    .Input("path: string")
    .SetIsStateful()
    .SetShapeFn(SaveShape)
    .Doc(R"doc(
Writes a table to a file, as a stream: extra memory is one shard. The file is whole or absent.

resource: handle of the table.
path: the file.
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
Replaces a table's content by that of files of EmbeddingVariableSave, which are checked first.

resource: handle of the table.
paths: `[p]` files, one for each partition that was saved.
partition_index: only keys that belong to this partition are kept.
num_partitions: number of partitions of the variable.
partition_strategy: how keys belong to partitions.
)doc");

}  // namespace fused_embedding
