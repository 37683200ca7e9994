#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status AdmitShape(InferenceContext* c) {
  int num_tables = 0, num_columns = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
  TF_RETURN_IF_ERROR(c->GetAttr("num_columns", &num_columns));
  for (int i = 0; i < num_columns; ++i) {
    ShapeHandle keys;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(num_tables + i), 1, &keys));
    c->set_output(i, keys);
    c->set_output(num_columns + i, keys);
  }
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(c->num_inputs() - 2), 1, &unused));
  return c->WithRank(c->input(c->num_inputs() - 1), 0, &unused);
}

}  // namespace

REGISTER_OP("EmbeddingVariableAdmit")
    .Input("resources: num_tables * resource")
    .Input("keys: num_columns * int64")
    .Input("first_values: Tvalues")
    .Input("min_frequencies: int64")
    .Input("step: int64")
    .Output("is_admitted: num_columns * bool")
    .Output("frequencies: num_columns * int64")
    .Attr("Tvalues: list({float, double, half, bfloat16}) >= 0")
    .Attr("num_tables: int >= 1")
    .Attr("num_columns: int >= 1")
    .Attr("table_of_column: list(int)")
    .Attr("insert: bool")
    .Attr("prune: bool = true")
    .SetIsStateful()
    .SetShapeFn(AdmitShape)
    .Doc(R"doc(
Counts the keys of several columns and inserts those that their tables admit, ahead of a lookup with
`insert` false. Says which keys have a row and how often each has occurred.

resources: handles of the tables.
keys: `[nnz]` keys of each column, which may repeat.
first_values: `[nnz, dim]` for each column, or none: the values that new rows start with; none: those
  of the initializer. Of a key that repeats, the first are used.
min_frequencies: `[num_tables]` occurrences from which an admission filter admits a key, instead of
  the filter's own; `[0]`: the filters' own.
step: version of the rows that are found or made; negative: each table's own step counter.
is_admitted: `[nnz]` for each column: whether the key has a row now.
frequencies: `[nnz]` for each column: occurrences of the key so far, with or without a row. 0 where
  nothing is inserted and the key has no row.
Tvalues: type of the first values, that of the tables.
table_of_column: which of the tables has the keys of a column.
insert: whether keys are counted, admitted and inserted (training), or nothing is changed.
prune: whether keys < 0 are no keys: not admitted, and of frequency 0.
)doc");

}  // namespace fused_embedding
