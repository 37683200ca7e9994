#include "tf_ops/core/optimizer/group_lookup_apply.cu.h"

#include "tf_ops/core/lookup/group/group_lookup_grad.cu.h"
#include "tf_ops/core/lookup/rows/pair_sums_kernels.cu.h"
#include "tf_ops/core/optimizer/rules.h"

namespace fused_embedding {
namespace {

// As the gradient that is not written.
template <int kWidth, typename T>
__device__ void Round(const ComputeType<T>* sums, T (&grad)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) Store(sums[i], &grad[i]);
}

// Updates the rows of a table by their sums: of rules that work value by value.
template <typename Rule, typename T, bool kScales = kScalesRows<Rule>>
struct UpdateRowsBySums {
  static constexpr bool kTakesRows = false;
  using C = ComputeType<T>;
  template <int kWidth>
  using Part = PartOfRow<kWidth, Rule, ArrayTable<T>>;

  ArrayTable<T> table;
  const int64_t* rows;  // [num_unique] row of each unique id
  Rule rule;

  __device__ int64_t RowOf(int64_t number) const { return rows[number]; }

  template <int kWidth>
  __device__ void Fetch(int64_t row, int64_t, int64_t offset, Part<kWidth>* part) const {
    part->LoadFrom(table, row, offset);
  }

  template <int kWidth>
  __device__ void Take(const Lanes&, int64_t row, int64_t, int64_t offset, const C* sums,
                       Part<kWidth>* part) const {
    T grad[kWidth];
    Round(sums, grad);
    part->Update(rule, grad);
    part->CopyTo(table, row, offset);
  }
};

// And of rules with a number a row.
template <typename Rule, typename T>
struct UpdateRowsBySums<Rule, T, true> {
  static constexpr bool kTakesRows = true;
  using C = ComputeType<T>;
  template <int kWidth>
  struct Part {
    C number;
    RowVector<T, kWidth> values;
  };

  ArrayTable<T> table;
  const int64_t* rows;  // [num_unique] row of each unique id
  Rule rule;

  __device__ int64_t RowOf(int64_t number) const { return rows[number]; }

  template <int kWidth>
  __device__ void Fetch(int64_t row, int64_t dim, int64_t offset, Part<kWidth>* part) const {
    part->number = *table.number(row);
    if (offset < dim) {
      part->values = RowVector<T, kWidth>::LoadFrom(table.values + row * dim + offset);
    }
  }

  template <int kWidth>
  __device__ void Take(const Lanes& lanes, int64_t row, int64_t dim, int64_t offset, const C* sums,
                       Part<kWidth>* part) const {
    T grad[kWidth];
    Round(sums, grad);
    C square = 0;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) square += Load(grad[i]) * Load(grad[i]);
    const C scale = ScaleOfRow(rule, lanes, table, row, lanes.Sum(square), part->number);
    if (offset >= dim) return;
    T values[kWidth];
    part->values.Unpack(values);
    rule.UpdateValues(values, grad, kWidth, scale);
    RowVector<T, kWidth>::Of(values).CopyTo(table.values + row * dim + offset);
  }
};

// Where the unique ids of each table of the plan are written: one table's after the other's.
template <typename T>
std::vector<TableGrad<T>> IdsOnly(const GpuGroupGradPlan<T>& plan, int64_t* rows) {
  std::vector<TableGrad<T>> ids;
  for (const GpuTableGradPlan<T>& table : plan.tables) {
    ids.push_back({rows + table.first_unique, nullptr});
  }
  return ids;
}

// Tables whose sums are written to memory first. Lists have an entry for each.
template <typename T>
struct StepsByMemory {
  std::vector<SumTable<T>> sums;
  std::vector<ArrayRows<T>> steps;
  std::vector<int64_t> firsts;  // where the sums begin
  int64_t num_values = 0;

  void Add(const GpuTableGradPlan<T>& table, const ArrayTable<T>& to, const int64_t* rows) {
    firsts.push_back(num_values);
    // Rows of 16 bytes stay aligned behind those of a table of another dim.
    const int64_t num_vectors = (table.num_unique * table.dim + kFullWidth<T> - 1) / kFullWidth<T>;
    num_values += num_vectors * kFullWidth<T>;
    sums.push_back(SumTableOf(table, 0, StoreSums<T>{}));
    steps.push_back({to, rows, nullptr, table.num_unique});
  }
};

template <typename T>
Status RunByMemory(const GpuExec& exec, const RuleInfo& rule, Span<const double> hyperparameters,
                   const SortedPairs<T>& pairs, StepsByMemory<T>* tables) {
  if (tables->steps.empty()) return Status();
  DeviceBuffer<T> memory;
  FE_RETURN_IF_ERROR(memory.Allocate(exec, tables->num_values));
  for (size_t i = 0; i < tables->steps.size(); ++i) {
    tables->sums[i].sink.out = memory.data() + tables->firsts[i];
    tables->steps[i].grads = tables->sums[i].sink.out;
  }
  FE_RETURN_IF_ERROR(SumPairs<T>(exec, pairs, tables->sums));
  return UpdateArrayRows<T>(exec, rule, hyperparameters, tables->steps);
}

template <typename Rule, typename T>
Status RunBy(const GpuExec& exec, const GpuGroupGradPlan<T>& plan, const RuleInfo& info,
             Span<const double> hyperparameters, Span<const ArrayTable<T>> tables) {
  using Sink = UpdateRowsBySums<Rule, T>;
  DeviceBuffer<int64_t> rows;
  SortedGroupPairs<T> sorted;
  FE_RETURN_IF_ERROR(rows.Allocate(exec, plan.unique.num_unique));
  const std::vector<TableGrad<T>> ids = IdsOnly(plan, rows.data());
  FE_RETURN_IF_ERROR(SortGroupPairs<T>(exec, plan, AsSpan(ids), &sorted));
  const Rule rule(hyperparameters.data);
  std::vector<SumTable<T, Sink>> fused;
  StepsByMemory<T> by_memory;
  for (int64_t t = 0; t < tables.size; ++t) {
    const GpuTableGradPlan<T>& table = plan.tables[static_cast<size_t>(t)];
    const uint64_t bits = AddressBits(tables[t], info.works_value_by_value ? info.num_slots : 0);
    const int64_t* rows_of_table = ids[static_cast<size_t>(t)].unique_ids;
    const auto sums = SumTableOf(table, bits, Sink{tables[t], rows_of_table, rule});
    if (!Sink::kTakesRows || TakesWholeRows<T>(table.dim, sums.is_full_width)) {
      fused.push_back(sums);
    } else {
      by_memory.Add(table, tables[t], rows_of_table);
    }
  }
  FE_RETURN_IF_ERROR(SumPairsInto(exec, sorted.pairs, fused));
  return RunByMemory(exec, info, hyperparameters, sorted.pairs, &by_memory);
}

}  // namespace

template <typename T>
Status RunGroupLookupApply(const GpuExec& exec, const GpuGroupGradPlan<T>& plan,
                           const RuleInfo& rule, Span<const double> hyperparameters,
                           Span<const ArrayTable<T>> tables) {
  using C = ComputeType<T>;
  FE_RETURN_IF_ERROR(CheckHyperparameters(rule, hyperparameters));
  const auto is = [&](const char* name) { return rule.name == name; };
  if (is(Sgd<C>::kName)) return RunBy<Sgd<C>>(exec, plan, rule, hyperparameters, tables);
  if (is(Adagrad<C>::kName)) return RunBy<Adagrad<C>>(exec, plan, rule, hyperparameters, tables);
  if (is(RowWiseAdagrad<C>::kName)) {
    return RunBy<RowWiseAdagrad<C>>(exec, plan, rule, hyperparameters, tables);
  }
  return MakeStatus(StatusCode::kUnimplemented, "rule ", rule.name,
                    " has no kernel that also computes the gradient; run the gradient first, then "
                    "the step");
}

#define FE_INSTANTIATE(T)                                                                          \
  template Status RunGroupLookupApply(const GpuExec&, const GpuGroupGradPlan<T>&, const RuleInfo&, \
                                      Span<const double>, Span<const ArrayTable<T>>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
