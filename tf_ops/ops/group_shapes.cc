#include "tf_ops/ops/group_shapes.h"

#include <algorithm>
#include <vector>

#include "tf_ops/ops/shape_functions.h"

namespace fused_embedding {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Where the inputs of an op start: combined_grads where it has them, the tables, the columns.
struct Inputs {
  int tables = 0, num_tables = 0;
  int columns = 0, num_columns = 0;  // sp_values, then as many sp_indices and sp_dense_shapes
};

// Attr `num_before` is the number of inputs between combined_grads and the columns; null: none.
absl::Status FindInputs(InferenceContext* c, bool has_grads, Inputs* in,
                        const char* num_before = "num_tables") {
  int num_outputs = 0, before = 0;
  if (has_grads) TF_RETURN_IF_ERROR(c->GetAttr("num_outputs", &num_outputs));
  if (num_before != nullptr) TF_RETURN_IF_ERROR(c->GetAttr(num_before, &before));
  TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &in->num_tables));
  TF_RETURN_IF_ERROR(c->GetAttr("num_columns", &in->num_columns));
  std::vector<tensorflow::DataType> ids;
  TF_RETURN_IF_ERROR(c->GetAttr("Tids", &ids));
  if (static_cast<int>(ids.size()) != in->num_columns) {
    return absl::InvalidArgumentError(
        "sp_values, sp_indices and sp_dense_shapes must have one entry for each column");
  }
  in->tables = num_outputs;
  in->columns = in->tables + before;
  return absl::OkStatus();
}

// The width of a row of a table, which may be a variable.
absl::Status TableDim(InferenceContext* c, int input, DimensionHandle* dim) {
  ShapeHandle table = c->input(input);
  if (const auto* variable = c->input_handle_shapes_and_types(input)) {
    table = variable->empty() ? c->UnknownShape() : (*variable)[0].shape;
  } else {
    tensorflow::DataType dtype;
    if (c->GetAttr("dtype", &dtype).ok()) table = c->UnknownShape();  // a handle of unknown kind
  }
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(table, 1, &table));
  *dim = c->UnknownDim();
  if (!c->RankKnown(table)) return absl::OkStatus();
  *dim = c->MakeDim(1);
  for (int i = 1; i < c->Rank(table); ++i) {
    TF_RETURN_IF_ERROR(c->Multiply(*dim, c->Dim(table, i), dim));
  }
  return absl::OkStatus();
}

absl::Status ColumnShape(InferenceContext* c, const Inputs& in, int column, DimensionHandle dim,
                         ShapeHandle* shape) {
  ShapeHandle values, indices;
  DimensionHandle nnz, num_rows;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(in.columns + column), 1, &values));
  const int indices_input = in.columns + in.num_columns + column;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(indices_input), 1, &indices));
  TF_RETURN_IF_ERROR(c->WithRankAtMost(indices, 2, &indices));
  if (c->RankKnown(indices)) {
    TF_RETURN_IF_ERROR(c->Merge(c->Dim(values, 0), c->Dim(indices, 0), &nnz));
  }
  TF_RETURN_IF_ERROR(NumRowsDim(c, in.columns + 2 * in.num_columns + column, &num_rows));
  *shape = c->Matrix(num_rows, dim);
  return absl::OkStatus();
}

// dim_of(first table, table, &dim) gives the width of a table's rows.
template <typename DimOf>
absl::Status CombinedShapes(InferenceContext* c, const DimOf& dim_of,
                            const char* num_before = "num_tables") {
  Inputs in;
  TF_RETURN_IF_ERROR(FindInputs(c, false, &in, num_before));
  std::vector<int> tables;
  TF_RETURN_IF_ERROR(c->GetAttr("table_of_column", &tables));
  int num_outputs = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_outputs", &num_outputs));
  if (static_cast<int>(tables.size()) != in.num_columns ||
      (num_outputs != 1 && num_outputs != in.num_columns)) {
    return absl::InvalidArgumentError(
        "table_of_column must have one entry for each column, and num_outputs must be 1 or the "
        "number of columns");
  }
  DimensionHandle num_rows = c->UnknownDim(), width = c->MakeDim(0);
  for (int i = 0; i < in.num_columns; ++i) {
    if (tables[i] < 0 || tables[i] >= in.num_tables) {
      return absl::InvalidArgumentError("table_of_column must be below the number of tables");
    }
    DimensionHandle dim;
    TF_RETURN_IF_ERROR(dim_of(in.tables, tables[i], &dim));
    ShapeHandle shape;
    TF_RETURN_IF_ERROR(ColumnShape(c, in, i, dim, &shape));
    if (num_outputs == in.num_columns) {
      c->set_output(i, shape);
      continue;
    }
    TF_RETURN_IF_ERROR(c->Merge(num_rows, c->Dim(shape, 0), &num_rows));
    TF_RETURN_IF_ERROR(c->Add(width, c->Dim(shape, 1), &width));
  }
  if (num_outputs != in.num_columns) c->set_output(0, c->Matrix(num_rows, width));
  return absl::OkStatus();
}

// Attr dims.
absl::Status DimsOfTables(InferenceContext* c, std::vector<int64_t>* dims) {
  int num_tables = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("dims", dims));
  TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
  if (static_cast<int>(dims->size()) == num_tables &&
      std::all_of(dims->begin(), dims->end(), [](int64_t dim) { return dim >= 1; })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("dims must have one entry >= 1 for each table");
}

}  // namespace

absl::Status GroupLookupShape(InferenceContext* c) {
  return CombinedShapes(c, [&](int first, int table, DimensionHandle* dim) {
    return TableDim(c, first + table, dim);
  });
}

absl::Status StoredRowsShape(InferenceContext* c) {
  std::vector<int64_t> dims;
  TF_RETURN_IF_ERROR(DimsOfTables(c, &dims));
  return CombinedShapes(c, [&](int, int table, DimensionHandle* dim) {
    *dim = c->MakeDim(dims[static_cast<size_t>(table)]);
    return absl::OkStatus();
  });
}

absl::Status RemoteKeysShape(InferenceContext* c) {
  Inputs in;
  TF_RETURN_IF_ERROR(FindInputs(c, false, &in, nullptr));
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(c->num_inputs() - 1), 0, &unused));  // step
  std::vector<int64_t> part_rows;
  TF_RETURN_IF_ERROR(c->GetAttr("part_rows", &part_rows));
  const int part_sizes = c->num_outputs() - in.num_columns - 2;
  for (int s = 0; s < part_sizes; ++s) c->set_output(s, c->Vector(c->UnknownDim()));
  c->set_output(part_sizes, c->Vector(static_cast<int64_t>(part_rows.size())));
  for (int i = 0; i < in.num_columns; ++i) {
    c->set_output(part_sizes + 1 + i, c->input(in.columns + i));
  }
  c->set_output(part_sizes + 1 + in.num_columns, c->Vector(in.num_columns));
  return absl::OkStatus();
}

absl::Status RemoteRowsShape(InferenceContext* c) {
  int num_tables = 0;
  TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(num_tables), 1, &unused));  // message
  c->set_output(0, c->Vector(c->UnknownDim()));
  c->set_output(1, c->Vector(num_tables));
  for (int t = 0; t < num_tables; ++t) {
    const ShapeHandle num_keys = c->Vector(c->UnknownDim());
    for (int i = 2 + t; i < c->num_outputs(); i += num_tables) c->set_output(i, num_keys);
  }
  return absl::OkStatus();
}

absl::Status RemoteLookupShape(InferenceContext* c) {
  std::vector<int64_t> dims;
  TF_RETURN_IF_ERROR(DimsOfTables(c, &dims));
  return CombinedShapes(
      c,
      [&](int, int table, DimensionHandle* dim) {
        *dim = c->MakeDim(dims[static_cast<size_t>(table)]);
        return absl::OkStatus();
      },
      "num_servers");
}

absl::Status RemoteLookupGradShape(InferenceContext* c) {
  Inputs in;
  TF_RETURN_IF_ERROR(FindInputs(c, true, &in, "num_servers"));
  for (int s = 0; s < c->num_outputs(); ++s) c->set_output(s, c->input(in.tables + s));
  return absl::OkStatus();
}

absl::Status UnpackRowsShape(InferenceContext* c) {
  std::vector<int64_t> dims;
  TF_RETURN_IF_ERROR(DimsOfTables(c, &dims));
  for (size_t t = 0; t < dims.size(); ++t) {
    c->set_output(static_cast<int>(t), c->Matrix(c->UnknownDim(), dims[t]));
  }
  return absl::OkStatus();
}

absl::Status TableGroupLookupShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(GroupLookupShape(c));
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(c->num_inputs() - 1), 0, &unused));  // step
  Inputs in;
  TF_RETURN_IF_ERROR(FindInputs(c, false, &in));
  const int num_after = 3 * in.num_tables + in.num_columns + 1;
  const int keys = c->num_outputs() - num_after, handles = keys + in.num_tables;
  const int rows = handles + in.num_tables, positions = rows + in.num_tables;
  for (int t = 0; t < in.num_tables; ++t) {
    DimensionHandle dim;
    TF_RETURN_IF_ERROR(TableDim(c, in.tables + t, &dim));
    const DimensionHandle num_keys = c->UnknownDim();
    c->set_output(keys + t, c->Vector(num_keys));
    c->set_output(handles + t, c->Vector(num_keys));
    c->set_output(rows + t, c->Matrix(num_keys, dim));
  }
  for (int i = 0; i < in.num_columns; ++i) c->set_output(positions + i, c->input(in.columns + i));
  c->set_output(positions + in.num_columns, c->Vector(in.num_columns));
  return absl::OkStatus();
}

absl::Status TableGroupLookupGradShape(InferenceContext* c) {
  Inputs in;
  TF_RETURN_IF_ERROR(FindInputs(c, true, &in));
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(c->num_inputs() - 1), 1, &unused));  // default_positions
  for (int t = 0; t < in.num_tables; ++t) {
    ShapeHandle rows;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(in.tables + t), 2, &rows));
    c->set_output(t, rows);
  }
  return absl::OkStatus();
}

absl::Status GroupLookupGradShape(InferenceContext* c) {
  Inputs in;
  TF_RETURN_IF_ERROR(FindInputs(c, true, &in));
  for (int t = 0; t < in.num_tables; ++t) {
    DimensionHandle dim;
    TF_RETURN_IF_ERROR(TableDim(c, in.tables + t, &dim));
    const DimensionHandle num_unique = c->UnknownDim();
    c->set_output(t, c->Vector(num_unique));
    c->set_output(in.num_tables + t, c->Matrix(num_unique, dim));
  }
  return absl::OkStatus();
}

absl::Status GroupLookupWeightsGradShape(InferenceContext* c) {
  const int first_weights = c->num_inputs() - c->num_outputs();
  ShapeHandle weights;
  for (int i = 0; i < c->num_outputs(); ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(first_weights + i), 1, &weights));
    c->set_output(i, weights);
  }
  return absl::OkStatus();
}

}  // namespace fused_embedding
