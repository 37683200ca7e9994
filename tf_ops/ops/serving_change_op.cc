#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status ChangeShape(InferenceContext* c) {
  std::vector<ShapeHandle> keys, values, removed_keys, is_full;
  TF_RETURN_IF_ERROR(c->input("keys", &keys));
  TF_RETURN_IF_ERROR(c->input("values", &values));
  TF_RETURN_IF_ERROR(c->input("removed_keys", &removed_keys));
  TF_RETURN_IF_ERROR(c->input("is_full", &is_full));
  ShapeHandle unused;
  DimensionHandle unused_size;
  for (size_t i = 0; i < keys.size(); ++i) {
    ShapeHandle rows;
    TF_RETURN_IF_ERROR(c->WithRank(keys[i], 1, &keys[i]));
    TF_RETURN_IF_ERROR(c->WithRank(values[i], 2, &rows));
    TF_RETURN_IF_ERROR(c->Merge(c->Dim(keys[i], 0), c->Dim(rows, 0), &unused_size));
    TF_RETURN_IF_ERROR(c->WithRank(removed_keys[i], 1, &unused));
    TF_RETURN_IF_ERROR(c->WithRank(is_full[i], 0, &unused));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("EmbeddingVariableServingChange")
    .Input("resources: N * resource")
    .Input("keys: N * int64")
    .Input("values: dtypes")
    .Input("removed_keys: N * int64")
    .Input("is_full: N * bool")
    .Input("variables: M * resource")
    .Input("new_values: variable_dtypes")
    .Attr("N: int >= 1")
    .Attr("dtypes: list({float, double, half, bfloat16}) >= 1")
    .Attr("M: int >= 0")
    .Attr("variable_dtypes: list(type) >= 0")
    .SetIsStateful()
    .SetShapeFn(ChangeShape)
    .Doc(R"doc(
Puts a delta into the tables of an export while no request holds EmbeddingVariableServingLock.

All of it is one op, so that a step that is cancelled leaves all or nothing of it. If it fails
half-way, as a table is full or memory runs out, requests and deltas are refused from then on.

resources: handles of the tables. The first one's lock stands for all of them.
keys: of each table `[n]`, keys that are set, whatever its admission filter says.
values: of each table `[n, dim]`.
removed_keys: of each table `[m]`, keys that are erased first.
is_full: of each table, whether all other keys are erased as well.
variables: handles of variables that change together with the tables.
new_values: of each variable, of any shape.
dtypes: of the tables' values, N of them.
variable_dtypes: of the variables, M of them.
)doc");

}  // namespace fused_embedding
