#include "tf_ops/kernels/group_input.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/kernels/sparse_inputs.h"

namespace fused_embedding {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename Value>
Status CheckLength(const char* name, const std::vector<Value>& list, size_t num_columns) {
  if (list.size() == num_columns) return Status();
  return InvalidArgument(name, " must have one entry for each of the ", num_columns,
                         " columns, got ", list.size());
}

Status CheckAttrs(const GroupAttrs& attrs, int64_t num_tables, size_t num_weighted) {
  const size_t num_columns = attrs.table_of_column.size();
  FE_RETURN_IF_ERROR(CheckLength("combiners", attrs.combiners, num_columns));
  FE_RETURN_IF_ERROR(CheckLength("max_norms", attrs.max_norms, num_columns));
  FE_RETURN_IF_ERROR(CheckLength("default_ids", attrs.default_ids, num_columns));
  if (!attrs.column_names.empty()) {
    FE_RETURN_IF_ERROR(CheckLength("column_names", attrs.column_names, num_columns));
  }
  for (const int64_t table : attrs.table_of_column) {
    if (table >= 0 && table < num_tables) continue;
    return InvalidArgument("table_of_column has ", table, ", which is outside [0, ", num_tables,
                           "), the number of tables");
  }
  if (attrs.weighted_columns.size() != num_weighted) {
    return InvalidArgument("weighted_columns must have one entry for each of the ", num_weighted,
                           " sp_weights, got ", attrs.weighted_columns.size());
  }
  int64_t last = -1;
  for (const int64_t column : attrs.weighted_columns) {
    if (column <= last || column >= static_cast<int64_t>(num_columns)) {
      return InvalidArgument("weighted_columns must be increasing numbers of columns below ",
                             num_columns, ", but has ", column, " after ", last);
    }
    last = column;
  }
  return Status();
}

Status CheckColumnInputs(const Tensor& values, const Tensor& indices) {
  const bool is_vector = indices.dims() == 1;
  const bool is_matrix = indices.dims() == 2 && indices.dim_size(1) >= 1;
  if (values.dims() == 1 && (is_vector || is_matrix) &&
      indices.dim_size(0) == values.NumElements()) {
    return Status();
  }
  return InvalidArgument(
      "sp_values must be a vector [nnz] and sp_indices a matrix [nnz, 2] or the rows [nnz], got "
      "shapes ",
      values.shape().DebugString(), " and ", indices.shape().DebugString());
}

template <typename T>
void SetOptions(const GroupAttrs& attrs, size_t c, GroupColumn<CoreType<T>>* column) {
  column->combiner = attrs.combiners[c];
  column->max_norm = attrs.max_norms[c];
  column->default_id = attrs.default_ids[c];
  column->prune = attrs.prune;
  column->fill = attrs.fill_empty_row;
  column->name = attrs.column_name(c);
}

template <typename T>
Status ReadGroupWeights(OpKernelContext* ctx, const GroupAttrs& attrs,
                        const WeightReader<T>& read_weights, GroupInput<T>* in) {
  OpInputList weights;
  FE_RETURN_IF_ERROR(InputList(ctx, "sp_weights", &weights));
  for (size_t i = 0; i < attrs.weighted_columns.size(); ++i) {
    const int64_t c = attrs.weighted_columns[i];
    auto& column = in->columns[static_cast<size_t>(c)];
    const Tensor& of_column = weights[static_cast<int>(i)];
    if (of_column.dims() != 1 || of_column.NumElements() != column.ids.size) {
      return InColumn(
          c,
          InvalidArgument("sp_weights must hold one weight for each of the ", column.ids.size,
                          " ids, got shape ", of_column.shape().DebugString()),
          column.name);
    }
    FE_RETURN_IF_ERROR(read_weights(of_column, &column.weights));
  }
  return Status();
}

// Where each column's values are in tensors [num_rows, dim], one a column, or in one tensor of all
// columns side by side.
struct ColumnPlace {
  int tensor;      // which
  int64_t offset;  // of its first value
  int64_t stride;  // values from a row to the next
};

// Places in `num_tensors` tensors, 1 or as many as columns, and the shape [rows, width] of each.
template <typename T>
Status PlaceColumns(const GroupInput<T>& in, int num_tensors, std::vector<ColumnPlace>* places,
                    std::vector<std::pair<int64_t, int64_t>>* shapes) {
  const bool is_concat = num_tensors == 1;
  const size_t num_columns = in.columns.size();
  if (!is_concat && static_cast<size_t>(num_tensors) != num_columns) {
    return InvalidArgument("there must be one output, or one for each of the ", num_columns,
                           " columns, got ", num_tensors);
  }
  int64_t width = 0;
  for (const auto& column : in.columns) {
    if (is_concat && column.num_rows != in.columns[0].num_rows) {
      return InvalidArgument("columns of one output must have one number of rows, but got ",
                             in.columns[0].num_rows, " and ", column.num_rows,
                             "; ask for one output for each column");
    }
    const int tensor = is_concat ? 0 : static_cast<int>(places->size());
    places->push_back({tensor, is_concat ? width : 0, column.dim});
    if (!is_concat) shapes->push_back({column.num_rows, column.dim});
    if (__builtin_add_overflow(width, column.dim, &width)) {
      return ResourceExhausted("the columns are too wide for one output");
    }
  }
  if (is_concat) {
    shapes->push_back({in.columns[0].num_rows, width});
    for (ColumnPlace& place : *places) place.stride = width;
  }
  return Status();
}

}  // namespace

Status ReadGroupAttrs(OpKernelConstruction* ctx, GroupAttrs* attrs) {
  for (const std::string& name : GetAttr<std::vector<std::string>>(ctx, "combiners")) {
    attrs->combiners.emplace_back();
    FE_RETURN_IF_ERROR(ParseCombiner(name, &attrs->combiners.back()));
  }
  attrs->max_norms = GetAttr<std::vector<float>>(ctx, "max_norms");
  attrs->default_ids = GetAttr<std::vector<int64_t>>(ctx, "default_ids");
  attrs->table_of_column = GetAttr<std::vector<int64_t>>(ctx, "table_of_column");
  attrs->weighted_columns = GetAttr<std::vector<int64_t>>(ctx, "weighted_columns");
  attrs->column_names = GetAttr<std::vector<std::string>>(ctx, "column_names");
  attrs->prune = GetAttr<bool>(ctx, "prune");
  attrs->fill_empty_row = GetAttr<bool>(ctx, "fill_empty_row");
  const auto num_columns = GetAttr<int64_t>(ctx, "num_columns");
  if (attrs->num_columns() != num_columns ||
      GetAttr<std::vector<tensorflow::DataType>>(ctx, "Tids").size() !=
          attrs->table_of_column.size()) {
    return InvalidArgument(
        "sp_values, sp_indices, sp_dense_shapes and table_of_column must have "
        "one entry for each column, got ",
        num_columns, " sp_indices and ", attrs->num_columns(), " entries of table_of_column");
  }
  return CheckAttrs(*attrs, GetAttr<int64_t>(ctx, "num_tables"),
                    GetAttr<std::vector<tensorflow::DataType>>(ctx, "Tweights").size());
}

GroupTables::~GroupTables() {
  for (tensorflow::Var* variable : locked_) variable->mu()->unlock_shared();
}

int64_t GroupTables::dim(int64_t t) const {
  const Tensor& table = (*this)[t];
  int64_t dim = 1;
  for (int i = 1; i < table.dims(); ++i) dim *= table.dim_size(i);
  return dim;
}

absl::Status GroupTables::CheckRanks() const {
  for (const Tensor* table : tables_) {
    if (table->dims() >= 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a table must have a shape [num_rows, ...], got ", table->shape().DebugString()));
  }
  return absl::OkStatus();
}

absl::Status GroupTables::ReadTensors(OpKernelContext* ctx) {
  OpInputList tables;
  TF_RETURN_IF_ERROR(ctx->input_list("tables", &tables));
  for (const Tensor& table : tables) tables_.push_back(&table);
  return CheckRanks();
}

absl::Status GroupTables::ReadVariables(OpKernelContext* ctx,
                                        Span<const tensorflow::DataType> dtypes) {
  OpInputList handles;
  TF_RETURN_IF_ERROR(ctx->input_list("resources", &handles));
  for (const Tensor& handle : handles) {
    if (handle.dtype() != tensorflow::DT_RESOURCE || handle.NumElements() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("resources must be handles of variables, got ", handle.DebugString()));
    }
    variables_.emplace_back();
    TF_RETURN_IF_ERROR(
        LookupResource(ctx, handle.flat<tensorflow::ResourceHandle>()(0), &variables_.back()));
  }
  std::vector<tensorflow::Var*> distinct;
  for (const auto& variable : variables_) distinct.push_back(variable.get());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (tensorflow::Var* variable : distinct) {
    variable->mu()->lock_shared();
    locked_.push_back(variable);
  }
  for (const auto& variable : variables_) {
    const auto t = dtypes.size == 1 ? 0 : static_cast<int64_t>(tables_.size());
    const tensorflow::DataType dtype = dtypes[t];
    if (variable->tensor()->dtype() != dtype) {
      return absl::InvalidArgumentError(
          absl::StrCat("a variable holds ", tensorflow::DataTypeString(variable->tensor()->dtype()),
                       ", but dtype is ", tensorflow::DataTypeString(dtype),
                       "; initialise the variable first, or pass its dtype"));
    }
    UseHugePages(ctx, *variable->tensor());
    tables_.push_back(variable->tensor());
  }
  return CheckRanks();
}

template <typename T>
Status ReadGroup(OpKernelContext* ctx, const GroupAttrs& attrs, const WeightReader<T>& read_weights,
                 GroupInput<T>* in) {
  OpInputList values, indices, dense_shapes;
  FE_RETURN_IF_ERROR(InputList(ctx, "sp_values", &values));
  FE_RETURN_IF_ERROR(InputList(ctx, "sp_indices", &indices));
  FE_RETURN_IF_ERROR(InputList(ctx, "sp_dense_shapes", &dense_shapes));
  in->columns.resize(attrs.table_of_column.size());
  for (int c = 0; c < values.size(); ++c) {
    auto& column = in->columns[static_cast<size_t>(c)];
    SetOptions<T>(attrs, static_cast<size_t>(c), &column);
    FE_RETURN_IF_ERROR(InColumn(c, CheckColumnInputs(values[c], indices[c]), column.name));
    FE_RETURN_IF_ERROR(InColumn(c, ReadNumRows(dense_shapes[c], &column.num_rows), column.name));
    column.ids = InputIds(values[c]);
    const int64_t stride = indices[c].dims() == 2 ? indices[c].dim_size(1) : 1;
    column.row_ids = {InputSpan<int64_t>(indices[c]).data, column.ids.size, stride, "sp_indices"};
  }
  return ReadGroupWeights(ctx, attrs, read_weights, in);
}

template <typename T>
void SetTables(const GroupAttrs& attrs, const GroupTables& tables, GroupInput<T>* in) {
  for (size_t c = 0; c < in->columns.size(); ++c) {
    const int64_t t = attrs.table_of_column[c];
    auto& column = in->columns[c];
    column.table = InputSpan<T>(tables[t]).data;
    column.table_rows = tables[t].dim_size(0);
    column.dim = tables.dim(t);
  }
}

Status ReadNumOutputs(OpKernelConstruction* ctx, const GroupAttrs& attrs, int* num_outputs) {
  *num_outputs = GetAttr<int>(ctx, "num_outputs");
  if (*num_outputs == 1 || *num_outputs == attrs.num_columns()) return Status();
  return InvalidArgument("num_outputs must be 1 or the number of columns, ", attrs.num_columns(),
                         ", got ", *num_outputs);
}

template <typename T>
absl::Status AllocateCombined(OpKernelContext* ctx, const GroupInput<T>& in, int num_outputs,
                              std::vector<CombinedOut<CoreType<T>>>* combined) {
  std::vector<ColumnPlace> places;
  std::vector<std::pair<int64_t, int64_t>> shapes;
  TF_RETURN_IF_ERROR(ToTfStatus(PlaceColumns(in, num_outputs, &places, &shapes)));
  std::vector<CoreType<T>*> outputs;
  for (const auto& [rows, width] : shapes) {
    Tensor* output = nullptr;
    const int index = static_cast<int>(outputs.size());
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, index, {rows, width}, &output));
    outputs.push_back(OutputSpan<T>(output).data);
  }
  for (const ColumnPlace& place : places) {
    CoreType<T>* output = outputs[static_cast<size_t>(place.tensor)];
    combined->push_back({output + place.offset, place.stride});
  }
  return absl::OkStatus();
}

template <typename T>
Status ReadCombinedGrads(OpKernelContext* ctx, const GroupInput<T>& in,
                         std::vector<CombinedGrad<CoreType<T>>>* grads) {
  OpInputList tensors;
  FE_RETURN_IF_ERROR(InputList(ctx, "combined_grads", &tensors));
  std::vector<ColumnPlace> places;
  std::vector<std::pair<int64_t, int64_t>> shapes;
  FE_RETURN_IF_ERROR(PlaceColumns(in, tensors.size(), &places, &shapes));
  for (int i = 0; i < tensors.size(); ++i) {
    const auto [rows, width] = shapes[static_cast<size_t>(i)];
    if (tensors[i].dims() == 2 && tensors[i].dim_size(0) == rows &&
        tensors[i].dim_size(1) == width) {
      continue;
    }
    return InvalidArgument("combined_grads[", i, "] must have the shape [", rows, ", ", width,
                           "] of the output, got ", tensors[i].shape().DebugString());
  }
  for (const ColumnPlace& place : places) {
    grads->push_back({InputSpan<T>(tensors[place.tensor]).data + place.offset, place.stride});
  }
  return Status();
}

#define FE_INSTANTIATE(T)                                                                \
  template Status ReadGroup(OpKernelContext*, const GroupAttrs&, const WeightReader<T>&, \
                            GroupInput<T>*);                                             \
  template void SetTables(const GroupAttrs&, const GroupTables&, GroupInput<T>*);        \
  template absl::Status AllocateCombined(OpKernelContext*, const GroupInput<T>&, int,    \
                                         std::vector<CombinedOut<CoreType<T>>>*);        \
  template Status ReadCombinedGrads(OpKernelContext*, const GroupInput<T>&,              \
                                    std::vector<CombinedGrad<CoreType<T>>>*);
FE_FOR_EACH_TF_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
