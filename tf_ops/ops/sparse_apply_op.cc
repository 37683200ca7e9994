#include <string>
#include <vector>

#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::DataType;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status SparseApplyShape(InferenceContext* c) {
  std::vector<ShapeHandle> grads, indices, hyperparameters;
  TF_RETURN_IF_ERROR(c->input("grads", &grads));
  TF_RETURN_IF_ERROR(c->input("indices", &indices));
  TF_RETURN_IF_ERROR(c->input("hyperparameters", &hyperparameters));
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(hyperparameters[0], 1, &unused));
  if (grads.size() != indices.size()) {
    return absl::InvalidArgumentError("there must be as many indices as grads");
  }
  for (size_t i = 0; i < grads.size(); ++i) {
    DimensionHandle num_rows;
    TF_RETURN_IF_ERROR(c->WithRankAtLeast(grads[i], 1, &unused));
    TF_RETURN_IF_ERROR(c->WithRank(indices[i], 1, &unused));
    if (!c->RankKnown(grads[i])) continue;
    TF_RETURN_IF_ERROR(c->Merge(c->Dim(grads[i], 0), c->Dim(unused, 0), &num_rows));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("FusedEmbeddingSparseApply")
    .Input("variables: Ref(T)")
    .Input("slots: Ref(slot_types)")
    .Input("grads: T")
    .Input("indices: Tindices")
    .Input("hyperparameters: double")
    .Attr("T: list({float, double, half, bfloat16}) >= 1")
    .Attr("slot_types: list({float, double, half, bfloat16}) >= 0")
    .Attr("Tindices: list({int32, int64}) >= 1")
    .Attr("rule: string")
    .Attr("use_locking: bool = false")
    .SetIsStateful()
    .SetShapeFn(SparseApplyShape)
    .Doc(R"doc(
Stage 7 for reference variables: one step of an optimizer on rows of several, in place.

A row that `indices` name several times is updated once, by the sum of its gradients. An index
outside its variable is an error, and no variable is changed then.

variables: `[num_rows, ...]` each, of any types and sizes; each variable and slot but once.
slots: those of the first variable in the order that docs/optimizers.md gives for the rule, then
  those of the second, and so on; each of its variable's type and shape.
grads: `[n, ...]` for each variable: gradients of rows.
indices: `[n]` for each variable: their rows, each in `[0, num_rows)`, in any order.
hyperparameters: `[h]` in the order that docs/optimizers.md gives for the rule.
rule: name of an optimizer rule whose slots have a number for each value, for example `adagrad`.
use_locking: hold the locks of variables and slots while they are updated.
)doc");

REGISTER_OP("FusedEmbeddingResourceSparseApply")
    .Input("variables: N * resource")
    .Input("slots: num_slots * resource")
    .Input("grads: T")
    .Input("indices: Tindices")
    .Input("hyperparameters: double")
    .Attr("N: int >= 1")
    .Attr("num_slots: int >= 0")
    .Attr("T: list({float, double, half, bfloat16}) >= 1")
    .Attr("Tindices: list({int32, int64}) >= 1")
    .Attr("rule: string")
    .SetIsStateful()
    .SetShapeFn(SparseApplyShape)
    .Doc(R"doc(
Stage 7 for resource variables: one step of an optimizer on rows of several, in place.

As FusedEmbeddingSparseApply. The locks of variables and slots are held; a variable whose memory a
dense read still refers to is copied first, as by a dense update.

variables: handles of variables `[num_rows, ...]`, of any types and sizes; each one but once.
slots: handles; those of the first variable in the order that docs/optimizers.md gives for the rule,
  then those of the second, and so on; each of its variable's type and shape.
grads: `[n, ...]` for each variable: gradients of rows.
indices: `[n]` for each variable: their rows, each in `[0, num_rows)`, in any order.
hyperparameters: `[h]` in the order that docs/optimizers.md gives for the rule.
rule: name of an optimizer rule whose slots have a number for each value, for example `adagrad`.
)doc");

}  // namespace fused_embedding
