#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status FileSummaryShape(InferenceContext* c) {
  ShapeHandle path;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 0, &path));
  int output = 0;
  for (int i = 0; i < 6; ++i) c->set_output(output++, c->Scalar());
  for (int i = 0; i < 3; ++i) {  // slots, rows, filtered keys: two vectors of one length each
    const ShapeHandle pair = c->Vector(c->UnknownDim());
    c->set_output(output++, pair);
    c->set_output(output++, pair);
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("EmbeddingVariableFileSummary")
    .Input("path: string")
    .Output("dtype: string")
    .Output("dim: int64")
    .Output("step: int64")
    .Output("admission: string")
    .Output("min_frequency: int64")
    .Output("bloom_bytes: int64")
    .Output("slot_names: string")
    .Output("slot_widths: int64")
    .Output("frequencies: uint32")
    .Output("versions: uint32")
    .Output("filtered_frequencies: uint32")
    .Output("filtered_versions: uint32")
    .SetIsStateful()
    .SetShapeFn(FileSummaryShape)
    .Doc(R"doc(
What a file of EmbeddingVariableSave says of its table, whose dim and dtype need not be known. The
whole file is read and its checksums are checked, in memory of 8 bytes a key.

path: the file.
dtype: name of the type of the values.
dim: length of a row.
step: the table's own step counter.
admission: filter of the table: all, counter or bloom.
min_frequency: occurrences after which that filter admits a key.
bloom_bytes: bytes of the counters of a Bloom filter.
slot_names: `[k]` names of the slots.
slot_widths: `[k]` numbers that each has in a row.
frequencies: `[n]` occurrences of the keys that have a row, in the order of the file.
versions: `[n]` step of their last training lookup.
filtered_frequencies: `[m]` occurrences of the keys that are counted and not admitted.
filtered_versions: `[m]` step of the last one.
)doc");

}  // namespace fused_embedding
