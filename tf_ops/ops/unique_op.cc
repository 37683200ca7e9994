#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status UniqueShape(InferenceContext* c) {
  ShapeHandle ids;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &ids));
  const ShapeHandle unique = c->Vector(c->UnknownDim());
  c->set_output(0, unique);
  c->set_output(1, ids);
  c->set_output(2, unique);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("UniqueWithCountsV3")
    .Input("input: KeyType")
    .Output("unique_keys: KeyType")
    .Output("unique_idxs: CounterType")
    .Output("unique_counts: CounterType")
    .Attr("KeyType: {int32, int64} = DT_INT64")
    .Attr("CounterType: {int32, int64} = DT_INT32")
    .SetShapeFn(UniqueShape)
    .Doc(R"doc(
Distinct ids in the order of their first occurrence, as tf.unique_with_counts.

Every value is a legal id, and the result is the same for any number of threads.

input: `[n]` ids.
CounterType: type of `unique_idxs` and `unique_counts`.
unique_keys: `[u]` distinct ids.
unique_idxs: `[n]` position of each id in `unique_keys`.
unique_counts: `[u]` number of occurrences.
)doc");

}  // namespace fused_embedding
