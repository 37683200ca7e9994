// Grouped lookups and their gradients.

#include "tf_ops/c_api/group_input.h"
#include "tf_ops/c_api/plans.h"
#include "tf_ops/core/lookup/group/group_lookup.h"

namespace fused_embedding::c_api {
namespace {

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
      return RunGroupLookup<T>(*cpu, AsSpan(input->columns), *plan, AsSpan(combined));
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
    if (const GpuExec* gpu = machine.gpu()) {
      auto plan = std::make_shared<GpuGroupGradPlan<T>>();
      FE_RETURN_IF_ERROR(fused_embedding::PlanGroupLookupGrad(*gpu, input->gradient(), plan.get()));
      for (const auto& table : plan->tables) AddSizes(table.num_unique, table, planned);
      planned->run = [=](const FeArray* outputs) {
        const std::vector<TableGrad<T>> grads = TableGrads<T>(plan->tables.size(), outputs);
        return RunGroupLookupGrad<T>(*gpu, *plan, AsSpan(grads));
      };
      return Status();
    }
    const CpuExec* cpu = machine.cpu();
    auto plan = std::make_shared<GroupGradPlan<T>>();
    FE_RETURN_IF_ERROR(fused_embedding::PlanGroupLookupGrad(*cpu, input->gradient(), plan.get()));
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
