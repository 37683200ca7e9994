#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status ApplyShape(InferenceContext* c) {
  ShapeHandle unused;
  for (const int vector : {1, 2, 4}) TF_RETURN_IF_ERROR(c->WithRank(c->input(vector), 1, &unused));
  return c->WithRank(c->input(3), 2, &unused);
}

}  // namespace

REGISTER_OP("EmbeddingVariableApply")
    .Input("resource: resource")
    .Input("keys: int64")
    .Input("handles: int64")
    .Input("grad: dtype")
    .Input("hyperparameters: double")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("rule: string")
    .Attr("slot_prefix: string")
    .SetIsStateful()
    .SetShapeFn(ApplyShape)
    .Doc(R"doc(
Stage 7: one step of an optimizer on the rows of distinct keys, values and slots in place.

Keys without a row are left alone. Advances the table's own step counter.

resource: handle of the table.
keys: `[n]` distinct keys.
handles: `[n]` output of the lookup of these keys, which saves looking for them again; or `[0]`.
grad: `[n, dim]` gradient of each row.
hyperparameters: `[h]` in the order that docs/optimizers.md gives for the rule.
dtype: type of the values.
rule: name of an optimizer rule, for example `adagrad`; docs/optimizers.md lists them.
slot_prefix: name of the optimizer: two optimizers of different names have slots of their own.
)doc");

}  // namespace fused_embedding
