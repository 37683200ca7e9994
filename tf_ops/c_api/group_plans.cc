// Grouped lookups and their gradients.

#include "tf_ops/c_api/arrays.h"
#include "tf_ops/c_api/plans.h"
#include "tf_ops/core/lookup/group_lookup.h"
#include "tf_ops/core/lookup/group_lookup_grad.h"

namespace fused_embedding::c_api {
namespace {

template <typename T>
struct GroupInput {
  std::vector<GroupColumn<T>> columns;
  std::vector<CombinedGrad<T>> grads;
  std::vector<int64_t> table_numbers;
};

template <typename T>
Status ToColumn(const FeColumn& in, GroupColumn<T>* column) {
  Span<const int64_t> ids, row_ids;
  Span<const int32_t> ids32;
  Span<const T> table;
  if (in.ids_are_int32) {
    FE_RETURN_IF_ERROR(ToSpan("ids", in.ids, &ids32));
    column->ids = ids32;
  } else {
    FE_RETURN_IF_ERROR(ToSpan("ids", in.ids, &ids));
    column->ids = ids;
  }
  FE_RETURN_IF_ERROR(ToSpan("row_ids", in.row_ids, &row_ids));
  FE_RETURN_IF_ERROR(ToSpan("weights", in.weights, &column->weights));
  FE_RETURN_IF_ERROR(ToSpan("table", in.table, in.table_rows, in.dim, &table));
  FE_RETURN_IF_ERROR(ToCombiner(in.combiner, &column->combiner));
  int64_t size = 0;
  if (in.num_rows < 0 || __builtin_mul_overflow(in.num_rows, in.dim, &size)) {
    return InvalidArgument("combined cannot have ", in.num_rows, " x ", in.dim, " elements");
  }
  column->row_ids = {row_ids.data, row_ids.size, 1, "row_ids"};
  column->num_rows = in.num_rows;
  column->table = table.data;
  column->table_rows = in.table_rows;
  column->dim = in.dim;
  column->max_norm = in.max_norm;
  column->default_id = in.default_id;
  column->prune = in.prune != 0;
  column->fill = in.fill != 0;
  return Status();
}

template <typename T>
Status ToColumns(const FeGroup& in, GroupInput<T>* input) {
  Span<const FeColumn> columns;
  FE_RETURN_IF_ERROR(
      ToSpan("columns", {const_cast<FeColumn*>(in.columns), in.num_columns}, &columns));
  for (int64_t c = 0; c < columns.size; ++c) {
    input->columns.emplace_back();
    FE_RETURN_IF_ERROR(InColumn(c, ToColumn(columns[c], &input->columns.back())));
  }
  return Status();
}

// Columns of one number must have one table.
template <typename T>
Status ToGradients(const FeGroup& in, GroupInput<T>* input) {
  if (in.num_tables < 0 || in.num_tables > in.num_columns) {
    return InvalidArgument("each of the ", in.num_tables, " tables must have one of the ",
                           in.num_columns, " columns");
  }
  std::vector<const FeColumn*> earlier;
  for (int64_t c = 0; c < in.num_columns; ++c) {
    const FeColumn& column = in.columns[c];
    Span<const T> grad;
    FE_RETURN_IF_ERROR(InColumn(
        c, ToSpan("combined_grad", column.combined_grad, column.num_rows, column.dim, &grad)));
    if (column.table_number < 0 || column.table_number >= in.num_tables) {
      return InColumn(c, InvalidArgument("table_number must be in [0, ", in.num_tables, "), got ",
                                         column.table_number));
    }
    for (const FeColumn* other : earlier) {
      if (other->table_number != column.table_number) continue;
      if (other->table.data == column.table.data && other->dim == column.dim) continue;
      return InColumn(c, InvalidArgument("table_number ", column.table_number,
                                         " stands for another table in an earlier column"));
    }
    earlier.push_back(&column);
    input->grads.push_back({grad.data, column.dim});
    input->table_numbers.push_back(column.table_number);
  }
  return Status();
}

template <typename Table>
void AddSizes(int64_t num_unique, const Table& table, FePlanned* planned) {
  planned->sizes.push_back(num_unique);
  planned->sizes.push_back(num_unique * table.dim);
}

template <typename T>
std::vector<TableGrad<T>> TableGrads(size_t num_tables, const FeArray* outputs) {
  std::vector<TableGrad<T>> grads(num_tables);
  for (TableGrad<T>& grad : grads) {
    grad.unique_ids = static_cast<int64_t*>((outputs++)->data);
    grad.rows_grad = static_cast<T*>((outputs++)->data);
  }
  return grads;
}

}  // namespace

Status PlanGroupLookup(const FeMachine& machine, const FeGroup& in, FePlanned* planned) {
  return VisitType(in.dtype, [&](auto value) {
    using T = decltype(value);
    auto input = std::make_shared<GroupInput<T>>();
    FE_RETURN_IF_ERROR(ToColumns(in, input.get()));
    for (const GroupColumn<T>& column : input->columns) {
      planned->sizes.push_back(column.num_rows * column.dim);
    }
    const auto combined_of = [input](const FeArray* outputs) {
      std::vector<CombinedOut<T>> combined;
      for (const GroupColumn<T>& column : input->columns) {
        combined.push_back({static_cast<T*>((outputs++)->data), column.dim});
      }
      return combined;
    };
    if (const GpuExec* gpu = machine.gpu()) {
      auto plan = std::make_shared<GpuGroupPlan<T>>();
      FE_RETURN_IF_ERROR(
          fused_embedding::PlanGroupLookup<T>(*gpu, AsSpan(input->columns), plan.get()));
      planned->run = [=](const FeArray* outputs) {
        const std::vector<CombinedOut<T>> combined = combined_of(outputs);
        return RunGroupLookup<T>(*gpu, AsSpan(input->columns), *plan, AsSpan(combined));
      };
      return Status();
    }
    const CpuExec* cpu = machine.cpu();
    auto plan = std::make_shared<GroupPlan<T>>();
    FE_RETURN_IF_ERROR(
        fused_embedding::PlanGroupLookup<T>(*cpu, AsSpan(input->columns), plan.get()));
    planned->run = [=](const FeArray* outputs) {
      const std::vector<CombinedOut<T>> combined = combined_of(outputs);
      RunGroupLookup<T>(*cpu, AsSpan(input->columns), plan.get(), AsSpan(combined));
      return Status();
    };
    return Status();
  });
}

Status PlanGroupLookupGrad(const FeMachine& machine, const FeGroup& in, FePlanned* planned) {
  return VisitType(in.dtype, [&](auto value) {
    using T = decltype(value);
    auto input = std::make_shared<GroupInput<T>>();
    FE_RETURN_IF_ERROR(ToColumns(in, input.get()));
    FE_RETURN_IF_ERROR(ToGradients(in, input.get()));
    const GroupGradInput<T> grad_input = {
        AsSpan(std::as_const(input->columns)), AsSpan(std::as_const(input->grads)),
        AsSpan(std::as_const(input->table_numbers)), in.num_tables};
    if (const GpuExec* gpu = machine.gpu()) {
      auto plan = std::make_shared<GpuGroupGradPlan<T>>();
      FE_RETURN_IF_ERROR(fused_embedding::PlanGroupLookupGrad(*gpu, grad_input, plan.get()));
      for (const auto& table : plan->tables) AddSizes(table.num_unique, table, planned);
      planned->run = [=](const FeArray* outputs) {
        const std::vector<TableGrad<T>> grads = TableGrads<T>(plan->tables.size(), outputs);
        return RunGroupLookupGrad<T>(*gpu, *plan, AsSpan(grads));
      };
      return Status();
    }
    const CpuExec* cpu = machine.cpu();
    auto plan = std::make_shared<GroupGradPlan<T>>();
    FE_RETURN_IF_ERROR(fused_embedding::PlanGroupLookupGrad(*cpu, grad_input, plan.get()));
    for (const auto& table : plan->tables) AddSizes(table.unique.num_unique, table, planned);
    planned->run = [=](const FeArray* outputs) {
      const std::vector<TableGrad<T>> grads = TableGrads<T>(plan->tables.size(), outputs);
      RunGroupLookupGrad<T>(*cpu, plan.get(), AsSpan(grads));
      return Status();
    };
    return Status();
  });
}

}  // namespace fused_embedding::c_api
