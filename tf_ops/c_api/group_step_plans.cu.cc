// The gradient of a grouped lookup and an optimizer's step by it.

#include <string>
#include <vector>

#include "tf_ops/c_api/group_input.h"
#include "tf_ops/c_api/plans.h"
#include "tf_ops/c_api/rule_input.h"
#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/optimizer/group_lookup_apply.cu.h"
#include "tf_ops/core/optimizer/row_wise_adagrad.h"

namespace fused_embedding::c_api {
namespace {

template <typename T>
struct Step : RuleInput {
  ValueType type;  // T
  GroupInput<T> input;
  std::vector<ArrayTable<T>> tables;
  std::vector<int64_t> table_rows;  // of each
};

// A table is what its columns look up.
template <typename T>
Status ToTables(const FeGroup& group, Step<T>* step) {
  const size_t num_tables = static_cast<size_t>(group.num_tables);
  constexpr int64_t kNoColumn = -1;
  step->tables.resize(num_tables);
  step->table_rows.assign(num_tables, kNoColumn);
  for (int64_t c = 0; c < group.num_columns; ++c) {
    const FeColumn& column = group.columns[c];
    const size_t table = static_cast<size_t>(column.table_number);
    step->tables[table].values = static_cast<T*>(column.table.data);
    step->tables[table].dim = column.dim;
    step->table_rows[table] = column.table_rows;
  }
  for (size_t t = 0; t < num_tables; ++t) {
    if (step->table_rows[t] == kNoColumn) {
      return InvalidArgument("table ", t, " must have a column that looks it up");
    }
  }
  return Status();
}

template <typename T>
Status ToSlot(const RuleInfo& rule, const FeArray& slot, int64_t num_rows, int64_t dim,
              void** data) {
  Span<T> like_values;
  Span<ComputeType<T>> of_rows;
  *data = slot.data;
  return rule.works_value_by_value ? ToSpan("slot", slot, num_rows, dim, &like_values)
                                   : ToSpan("slot", slot, num_rows, 1, &of_rows);
}

template <typename T>
Status ToSlots(const FeGroupApply& in, Step<T>* step) {
  const int64_t num_slots = step->rule.num_slots, num_tables = in.group.num_tables;
  if (in.num_slots != num_tables * num_slots || (in.slots == nullptr && in.num_slots > 0)) {
    return InvalidArgument("rule ", step->rule.name, " has ", num_slots, " slots for each of the ",
                           num_tables, " tables, got ", in.slots ? in.num_slots : 0);
  }
  const FeArray* slot = in.slots;
  for (int64_t t = 0; t < num_tables; ++t) {
    ArrayTable<T>& table = step->tables[static_cast<size_t>(t)];
    for (int64_t k = 0; k < num_slots; ++k) {
      const Status status = ToSlot<T>(step->rule, *slot++, step->table_rows[static_cast<size_t>(t)],
                                      table.dim, &table.slots[k]);
      if (!status.ok()) return MakeStatus(status.code(), "table ", t, ": ", status.message());
    }
  }
  return Status();
}

// As ops do that are one after the other: the gradient of each table has memory of its own.
template <typename T>
Status StepByMemory(const GpuExec& gpu, const GpuGroupGradPlan<T>& plan, const Step<T>& step) {
  DeviceBuffer<int64_t> ids;
  std::vector<DeviceBuffer<T>> rows(plan.tables.size());
  std::vector<TableGrad<T>> grads;
  std::vector<ArrayRows<T>> updates;
  FE_RETURN_IF_ERROR(ids.Allocate(gpu, plan.unique.num_unique));
  for (size_t t = 0; t < rows.size(); ++t) {
    const GpuTableGradPlan<T>& table = plan.tables[t];
    FE_RETURN_IF_ERROR(rows[t].Allocate(gpu, table.num_unique * table.dim));
    grads.push_back({ids.data() + table.first_unique, rows[t].data()});
    updates.push_back({step.tables[t], grads[t].unique_ids, grads[t].rows_grad, table.num_unique});
  }
  FE_RETURN_IF_ERROR(RunGroupLookupGrad<T>(gpu, plan, AsSpan(std::as_const(grads))));
  return UpdateArrayRows<T>(gpu, step.rule, step.numbers(), updates);
}

template <typename T>
Status PlanOnGpu(const GpuExec& gpu, const std::shared_ptr<const Step<T>>& step, bool is_fused,
                 FePlanned* planned) {
  auto plan = std::make_shared<GpuGroupGradPlan<T>>();
  FE_RETURN_IF_ERROR(fused_embedding::PlanGroupLookupGrad(gpu, step->input.gradient(), plan.get()));
  planned->run = [=, &gpu](const FeArray*) {
    return is_fused ? RunGroupLookupApply<T>(gpu, *plan, step->rule, step->numbers(),
                                             AsSpan(step->tables))
                    : StepByMemory<T>(gpu, *plan, *step);
  };
  return Status();
}

// The one rule that has a step on arrays on a GPU only: on a CPU, tables of its users are hash
// tables.
template <typename T>
void StepRowWise(const Step<T>& step, const GroupGradPlan<T>& plan, std::vector<Buffer<T>>* grads) {
  const RowWiseAdagrad<ComputeType<T>> rule(step.hyperparameters.data());
  for (size_t t = 0; t < plan.tables.size(); ++t) {
    const UniquePlan<int64_t>& unique = plan.tables[t].unique;
    const ArrayTable<T>& table = step.tables[t];
    for (int64_t u = 0; u < unique.num_unique; ++u) {
      const int64_t row = unique.unique_ids.span()[u];
      rule.Update(table.values + row * table.dim, (*grads)[t].data() + u * table.dim, table.dim,
                  static_cast<ComputeType<T>*>(table.slots[0]) + row);
    }
  }
}

template <typename T>
Status StepOnArrays(const CpuExec& cpu, const Step<T>& step, const GroupGradPlan<T>& plan,
                    std::vector<Buffer<T>>* grads) {
  SparseApplyInput in = {step.rule, {}, step.numbers()};
  for (size_t t = 0; t < plan.tables.size(); ++t) {
    const UniquePlan<int64_t>& unique = plan.tables[t].unique;
    const ArrayTable<T>& table = step.tables[t];
    SparseUpdate update;
    update.type = step.type;
    update.num_rows = step.table_rows[t];
    update.dim = table.dim;
    update.values = reinterpret_cast<char*>(table.values);
    for (size_t k = 0; k < kMaxArraySlots; ++k) {
      update.slots[k] = static_cast<char*>(table.slots[k]);
    }
    update.indices = Span<const int64_t>{unique.unique_ids.span().data, unique.num_unique};
    update.grads = reinterpret_cast<const char*>((*grads)[t].data());
    in.updates.push_back(update);
  }
  SparseApplyPlan apply_plan;
  FE_RETURN_IF_ERROR(PlanSparseApply(cpu, in, &apply_plan));
  RunSparseApply(cpu, in, &apply_plan);
  return Status();
}

template <typename T>
Status PlanOnCpu(const CpuExec& cpu, const std::shared_ptr<const Step<T>>& step,
                 FePlanned* planned) {
  const bool is_row_wise = step->rule.name == RowWiseAdagrad<float>::kName;
  if (!is_row_wise) FE_RETURN_IF_ERROR(CheckRuleForArrays(step->rule));
  auto plan = std::make_shared<GroupGradPlan<T>>();
  FE_RETURN_IF_ERROR(fused_embedding::PlanGroupLookupGrad(cpu, step->input.gradient(), plan.get()));
  planned->run = [=, &cpu](const FeArray*) {
    std::vector<Buffer<T>> rows(plan->tables.size());
    std::vector<TableGrad<T>> grads;
    for (size_t t = 0; t < rows.size(); ++t) {
      const TableGradPlan<T>& table = plan->tables[t];
      FE_RETURN_IF_ERROR(rows[t].Allocate(table.unique.num_unique * table.dim));
      grads.push_back({nullptr, rows[t].data()});
    }
    RunGroupLookupGrad<T>(cpu, plan.get(), AsSpan(std::as_const(grads)));
    if (!is_row_wise) return StepOnArrays(cpu, *step, *plan, &rows);
    StepRowWise(*step, *plan, &rows);
    return Status();
  };
  return Status();
}

template <typename T>
Status PlanStep(const FeMachine& machine, const FeGroupApply& in, FePlanned* planned) {
  auto step = std::make_shared<Step<T>>();
  step->type = static_cast<ValueType>(in.group.dtype);  // in the same order
  FE_RETURN_IF_ERROR(ToColumns(in.group, &step->input));
  FE_RETURN_IF_ERROR(ToGradients(in.group, &step->input));
  FE_RETURN_IF_ERROR(ToRule(in.rule, in.hyperparameters, step.get()));
  FE_RETURN_IF_ERROR(ToTables(in.group, step.get()));
  FE_RETURN_IF_ERROR(ToSlots(in, step.get()));
  return machine.gpu() ? PlanOnGpu<T>(*machine.gpu(), step, in.is_fused != 0, planned)
                       : PlanOnCpu<T>(*machine.cpu(), step, planned);
}

}  // namespace

Status PlanGroupLookupApply(const FeMachine& machine, const FeGroupApply& in, FePlanned* planned) {
  return VisitType(in.group.dtype,
                   [&](auto value) { return PlanStep<decltype(value)>(machine, in, planned); });
}

}  // namespace fused_embedding::c_api
