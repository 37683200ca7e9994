// Lookups in tables without a vocabulary, and steps on arrays.

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tf_ops/c_api/rule_input.h"
#include "tf_ops/c_api/table_groups.h"
#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/lookup/group/group_lookup.h"
#include "tf_ops/core/lookup/group/table_group_lookup.h"
#include "tf_ops/core/optimizer/sparse_apply.h"

namespace fused_embedding::c_api {
namespace {

template <typename T>
using CpuTableGroup = TableGroup<T, EmbeddingTable>;

// A table with the rows of an array by their numbers.
template <typename T>
Status MakeTable(const CpuExec& cpu, const GroupColumn<T>& column, int32_t dtype,
                 std::unique_ptr<EmbeddingTable>* table) {
  TableConfig config;
  config.layout.dim = column.dim;
  config.layout.value_type = static_cast<ValueType>(dtype);  // in the same order
  FE_RETURN_IF_ERROR(EmbeddingTable::Create(config, table));
  Buffer<int64_t> keys;
  FE_RETURN_IF_ERROR(keys.Allocate(column.table_rows));
  std::iota(keys.span().begin(), keys.span().end(), int64_t{0});
  EmbeddingTable::Content content;
  content.keys = keys.span();
  content.values = reinterpret_cast<const char*>(column.table);
  return (*table)->Upsert(cpu, content);
}

// What the keys of each table are, and where its rows go.
template <typename T>
Status FindTableKeys(const CpuExec& cpu, const CpuTableGroup<T>& group,
                     std::vector<Buffer<int32_t>>* positions, GroupKeys* keys) {
  std::vector<Span<int32_t>> spans;
  for (const GroupColumn<T>& column : group.input.columns) {
    positions->emplace_back();
    FE_RETURN_IF_ERROR(positions->back().Allocate(column.num_pairs()));
    spans.push_back(positions->back().span());
  }
  GroupKeysInput<T> in;
  in.columns = AsSpan(group.input.columns);
  in.table_of_column = AsSpan(group.input.table_numbers);
  in.positions = AsSpan(std::as_const(spans));
  in.num_tables = static_cast<int64_t>(group.tables.size());
  return FindGroupKeys(cpu, in, keys);
}

template <typename T>
Status LookUp(const CpuExec& cpu, const CpuTableGroup<T>& group, const FeArray* outputs) {
  std::vector<Buffer<int32_t>> positions;
  GroupKeys keys;
  FE_RETURN_IF_ERROR(FindTableKeys(cpu, group, &positions, &keys));
  std::vector<Buffer<T>> rows(group.tables.size());
  std::vector<TableLookup> lookups;
  for (size_t t = 0; t < group.tables.size(); ++t) {
    FE_RETURN_IF_ERROR(
        rows[t].Allocate(keys.tables[t].keys().size * group.tables[t]->config().layout.dim));
    TableLookup lookup;
    lookup.table = group.tables[t].get();
    lookup.in = {keys.tables[t].keys(), keys.tables[t].counts.span()};
    lookup.out.values = reinterpret_cast<char*>(rows[t].data());
    lookups.push_back(lookup);
  }
  std::vector<GroupColumn<T>> columns;
  for (size_t c = 0; c < group.input.columns.size(); ++c) {
    const size_t t = static_cast<size_t>(group.input.table_numbers[c]);
    columns.push_back(PositionColumn<T>(
        group.input.columns[c], Span<const int32_t>(positions[c].span()),
        DefaultPosition{keys.default_positions[c]}, rows[t].data(), keys.tables[t].keys().size));
  }
  GroupPlan<T> plan;
  FE_RETURN_IF_ERROR(
      fused_embedding::PlanGroupLookup<T>(keys.orders, AsSpan(std::as_const(columns)), &plan));
  return LookUpTables(cpu, AsSpan(lookups), [&](const CpuExec& exec, int64_t t) {
    for (size_t c = 0; c < columns.size(); ++c) {
      if (group.input.table_numbers[c] != t) continue;
      T* combined = static_cast<T*>(outputs[c].data);
      FE_RETURN_IF_ERROR(
          RunColumnLookup<T>(exec, columns[c], plan.columns[c], {combined, columns[c].dim}));
    }
    return Status();
  });
}

// What a step gets, and the hyperparameters that it refers to.
struct Update : RuleInput {
  SparseApplyInput in;
};

template <typename T>
Status ToUpdate(const FeSparseApply& in, Update* update) {
  Span<T> table, slots;
  Span<const int64_t> indices;
  Span<const T> grads;
  const RuleInfo& rule = update->rule;
  FE_RETURN_IF_ERROR(ToRule(in.rule, in.hyperparameters, update));
  FE_RETURN_IF_ERROR(CheckRuleForArrays(rule));
  FE_RETURN_IF_ERROR(ToSpan("table", in.table, in.num_rows, in.dim, &table));
  FE_RETURN_IF_ERROR(ToSpan("slots", in.slots, rule.num_slots, table.size, &slots));
  FE_RETURN_IF_ERROR(ToSpan("indices", in.indices, &indices));
  FE_RETURN_IF_ERROR(ToSpan("grads", in.grads, indices.size, in.dim, &grads));
  update->in.rule = rule;
  update->in.hyperparameters = update->numbers();
  SparseUpdate of_table;
  of_table.type = static_cast<ValueType>(in.dtype);  // in the same order
  of_table.num_rows = in.num_rows;
  of_table.dim = in.dim;
  of_table.values = reinterpret_cast<char*>(table.data);
  for (int64_t k = 0; k < rule.num_slots; ++k) {
    of_table.slots[static_cast<size_t>(k)] = reinterpret_cast<char*>(slots.data + k * table.size);
  }
  of_table.indices = indices;
  of_table.grads = reinterpret_cast<const char*>(grads.data);
  update->in.updates = {of_table};
  return Status();
}

}  // namespace

Status PlanTableGroupLookup(const FeMachine& machine, const FeGroup& in, FePlanned* planned) {
  if (const GpuExec* gpu = machine.gpu()) return PlanGpuTableGroupLookup(*gpu, in, planned);
  return VisitType(in.dtype, [&](auto value) {
    using T = decltype(value);
    auto group = std::make_shared<CpuTableGroup<T>>();
    const auto make = [&](const GroupColumn<T>& column, auto* table) {
      return MakeTable(*machine.cpu(), column, in.dtype, table);
    };
    FE_RETURN_IF_ERROR(MakeTables(in, make, group.get()));
    for (const GroupColumn<T>& column : group->input.columns) {
      planned->sizes.push_back(column.num_rows * column.dim);
    }
    planned->run = [cpu = machine.cpu(), group](const FeArray* outputs) {
      return LookUp<T>(*cpu, *group, outputs);
    };
    return Status();
  });
}

Status PlanSparseApply(const FeMachine& machine, const FeSparseApply& in, FePlanned* planned) {
  auto update = std::make_shared<Update>();
  FE_RETURN_IF_ERROR(
      VisitType(in.dtype, [&](auto value) { return ToUpdate<decltype(value)>(in, update.get()); }));
  if (const GpuExec* gpu = machine.gpu()) {
    auto plan = std::make_shared<GpuSparseApplyPlan>();
    FE_RETURN_IF_ERROR(fused_embedding::PlanSparseApply(*gpu, update->in, plan.get()));
    planned->run = [=](const FeArray*) { return RunSparseApply(*gpu, update->in, *plan); };
    return Status();
  }
  auto plan = std::make_shared<SparseApplyPlan>();
  FE_RETURN_IF_ERROR(fused_embedding::PlanSparseApply(*machine.cpu(), update->in, plan.get()));
  planned->run = [=, cpu = machine.cpu()](const FeArray*) {
    RunSparseApply(*cpu, update->in, plan.get());
    return Status();
  };
  return Status();
}

}  // namespace fused_embedding::c_api
