// What the registrations of all ops of a grouped lookup have in common, said once: macros, because
// a registration is a chain of calls. They read like calls of it:
//
//   REGISTER_OP("Name").Input("tables: num_tables * T").FE_GROUP_INPUTS().FE_GROUP_ATTRS("T", "0")
//
// tools/gen_op_reference.py knows them. The order of attrs is what saved graphs and callers have.

#ifndef FUSED_EMBEDDING_OPS_GROUP_REGISTRATION_H_
#define FUSED_EMBEDDING_OPS_GROUP_REGISTRATION_H_

// The columns, behind the tables.
#define FE_GROUP_INPUTS()                            \
  Input("sp_values: Tids")                           \
      .Input("sp_indices: num_columns * int64")      \
      .Input("sp_dense_shapes: num_columns * int64") \
      .Input("sp_weights: Tweights")

#define FE_GROUP_INPUTS_DOC                                                                    \
  "sp_indices: `[nnz, 2]` row and column of each id, or `[nnz]` its row; rows in any order.\n" \
  "sp_dense_shapes: `[k]`, k >= 2; num_rows is the product of all but the last element.\n"     \
  "sp_weights: `[nnz]` weights of the columns that have some.\n"

// `type` is the attr of the values' type; `min_weighted` how many columns must have weights.
#define FE_GROUP_ATTRS(type, min_weighted) \
  FE_GROUP_COLUMN_ATTRS(type, min_weighted).FE_GROUP_FLAG_ATTRS()

// What lists have an entry for, and those lists.
#define FE_GROUP_COLUMN_ATTRS(type, min_weighted)                               \
  Attr(type ": {float, double, half, bfloat16}")                                \
      .Attr("Tids: list({int32, int64}) >= 1")                                  \
      .Attr("Tweights: list({float, double, half, bfloat16}) >= " min_weighted) \
      .Attr("num_tables: int >= 1")                                             \
      .Attr("num_columns: int >= 1")                                            \
      .Attr("num_outputs: int >= 1")                                            \
      .Attr("table_of_column: list(int)")                                       \
      .Attr("weighted_columns: list(int)")                                      \
      .Attr("combiners: list(string)")                                          \
      .Attr("max_norms: list(float)")                                           \
      .Attr("default_ids: list(int)")

#define FE_GROUP_FLAG_ATTRS()              \
  Attr("prune: bool = true")               \
      .Attr("fill_empty_row: bool = true") \
      .Attr("column_names: list(string) = []")

// Of all these attrs but the types and default_ids.
#define FE_GROUP_ATTRS_DOC                                                                   \
  "table_of_column: which of the tables a column reads.\n"                                   \
  "weighted_columns: the column of each of `sp_weights`, increasing.\n"                      \
  "combiners: of each column. sum: sum(w e). mean: sum(w e) / sum(w). "                      \
  "sqrtn: sum(w e) / sqrt(sum(w^2)).\n"                                                      \
  "max_norms: of each column: embeddings of a larger L2 norm are scaled down to it first; "  \
  "negative: off.\n"                                                                         \
  "prune: drop id < 0, and not (weight > 0) unless the combiner is sum.\n"                   \
  "fill_empty_row: whether rows without ids get a default id at all.\n"                      \
  "column_names: what errors call each column; none, or empty: \"column\" and its number.\n" \
  "num_outputs: 1, or the number of columns.\n"

#endif  // FUSED_EMBEDDING_OPS_GROUP_REGISTRATION_H_
