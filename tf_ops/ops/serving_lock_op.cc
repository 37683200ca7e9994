#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status UnlockShape(InferenceContext* c) {
  ShapeHandle unused;
  return c->WithRank(c->input(0), 0, &unused);
}

}  // namespace

REGISTER_OP("EmbeddingVariableServingLock")
    .Input("resource: resource")
    .Output("lock: variant")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Waits until no delta is being put into the tables of an export, and keeps deltas waiting.

Any number of requests hold the lock at once. One that comes while a delta waits is held after it.
It is an error if a delta has failed half-way.

resource: handle of the first table of the export, whose lock stands for all of them.
lock: scalar. The lock is held until EmbeddingVariableServingUnlock, or until nothing has this
  value any more: a request that fails drops it.
)doc");

REGISTER_OP("EmbeddingVariableServingUnlock")
    .Input("lock: variant")
    .Input("results: dtypes")
    .Attr("dtypes: list(type) >= 0")
    .SetIsStateful()
    .SetShapeFn(UnlockShape)
    .Doc(R"doc(
Releases what EmbeddingVariableServingLock holds; once is enough.

lock: scalar.
results: what was computed while the lock was held, which is not looked at. A control edge from a
  function that is called would not do: once that is inlined, it waits for no result.
dtypes: of the results.
)doc");

}  // namespace fused_embedding
