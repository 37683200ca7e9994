#include "tensorflow/core/framework/op.h"
#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status ExportShape(InferenceContext* c) {
  const auto rows = c->UnknownDim();
  const ShapeHandle per_row = c->Vector(rows);
  const ShapeHandle filtered = c->Vector(c->UnknownDim());
  const ShapeHandle slots = c->Vector(c->UnknownDim());
  int output = 0;
  c->set_output(output++, per_row);                           // keys
  c->set_output(output++, c->Matrix(rows, c->UnknownDim()));  // values
  c->set_output(output++, c->Matrix(rows, c->UnknownDim()));  // slots
  for (int i = 0; i < 2; ++i) c->set_output(output++, per_row);
  for (int i = 0; i < 3; ++i) c->set_output(output++, filtered);
  c->set_output(output++, c->Vector(c->UnknownDim()));  // bloom
  for (int i = 0; i < 3; ++i) c->set_output(output++, slots);
  for (int i = 0; i < 2; ++i) c->set_output(output++, c->Scalar());  // step, initializer
  c->set_output(output++, c->Vector(2));                             // its parameters
  c->set_output(output++, c->Scalar());                              // seed
  c->set_output(output++, c->Matrix(c->UnknownDim(), c->UnknownDim()));
  return absl::OkStatus();
}

absl::Status ImportShape(InferenceContext* c) {
  ShapeHandle unused;
  for (const int matrix : {2, 3, 17}) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(matrix), 2, &unused));
  }
  for (const int vector : {1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15}) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(vector), 1, &unused));
  }
  for (const int scalar : {13, 14, 16}) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(scalar), 0, &unused));
  }
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("EmbeddingVariableExport")
    .Input("resource: resource")
    .Output("keys: int64")
    .Output("values: dtype")
    .Output("slots: slot_dtype")
    .Output("frequencies: int64")
    .Output("versions: int64")
    .Output("filtered_keys: int64")
    .Output("filtered_frequencies: int64")
    .Output("filtered_versions: int64")
    .Output("bloom: uint8")
    .Output("slot_names: string")
    .Output("slot_widths: int64")
    .Output("slot_initials: double")
    .Output("step: int64")
    .Output("initializer: string")
    .Output("initializer_parameters: double")
    .Output("seed: int64")
    .Output("initializer_matrix: dtype")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("slot_dtype: {float, double}")
    .SetIsStateful()
    .SetShapeFn(ExportShape)
    .Doc(R"doc(
A copy of a table's content as tensors. Each shard is copied at one moment.

resource: handle of the table.
dtype: type of the values.
slot_dtype: double for a table of doubles, float for every other.
keys: `[n]` keys that have a row, in ascending order.
values: `[n, dim]` values.
slots: `[n, w]` numbers of all optimizers, side by side.
frequencies: `[n]` occurrences.
versions: `[n]` step of the last training lookup.
filtered_keys: `[m]` keys that are counted and not admitted, in ascending order.
filtered_frequencies: `[m]` their occurrences.
filtered_versions: `[m]` step of the last one.
bloom: `[b]` counters of a Bloom filter.
slot_names: `[k]` names of the slots.
slot_widths: `[k]` how many of the w numbers each has.
slot_initials: `[k]` what each number of a new row is.
step: the table's own step counter.
initializer: kind of the rows' first values, as the attr of EmbeddingVariableHandle.
initializer_parameters: `[2]` its a and b.
seed: of the rows' first values.
initializer_matrix: `[rows, dim]` default values; no rows where the initializer needs none.
)doc");

REGISTER_OP("EmbeddingVariableImport")
    .Input("resource: resource")
    .Input("keys: int64")
    .Input("values: dtype")
    .Input("slots: slot_dtype")
    .Input("frequencies: int64")
    .Input("versions: int64")
    .Input("filtered_keys: int64")
    .Input("filtered_frequencies: int64")
    .Input("filtered_versions: int64")
    .Input("bloom: uint8")
    .Input("slot_names: string")
    .Input("slot_widths: int64")
    .Input("slot_initials: double")
    .Input("step: int64")
    .Input("initializer: string")
    .Input("initializer_parameters: double")
    .Input("seed: int64")
    .Input("initializer_matrix: dtype")
    .Attr("dtype: {float, double, half, bfloat16}")
    .Attr("slot_dtype: {float, double}")
    .Attr("partition_index: int = 0")
    .Attr("num_partitions: int = 1")
    .Attr("partition_strategy: {'mod_ev', 'hash'} = 'hash'")
    .SetIsStateful()
    .SetShapeFn(ImportShape)
    .Doc(R"doc(
Replaces a table's content by that of an EmbeddingVariableExport. Inputs are its outputs.

resource: handle of the table.
keys: `[n]` keys.
values: `[n, dim]` values.
slots: `[n, w]` numbers of all optimizers, side by side.
frequencies: `[n]` occurrences.
versions: `[n]` step of the last training lookup.
filtered_keys: `[m]` keys that are counted and not admitted.
filtered_frequencies: `[m]` their occurrences.
filtered_versions: `[m]` step of the last one.
bloom: `[b]` counters of a Bloom filter; `[0]`: none.
slot_names: `[k]` names of the slots.
slot_widths: `[k]` how many of the w numbers each has.
slot_initials: `[k]` what each number of a new row is.
step: the table's own step counter.
initializer: kind of the rows' first values, as the attr of EmbeddingVariableHandle.
initializer_parameters: `[2]` its a and b.
seed: of the rows' first values.
initializer_matrix: `[rows, dim]` default values; no rows where the initializer needs none.
dtype: type of the values.
slot_dtype: double for a table of doubles, float for every other.
partition_index: only keys that belong to this partition are kept.
num_partitions: number of partitions of the variable.
partition_strategy: how keys belong to partitions.
)doc");

}  // namespace fused_embedding
