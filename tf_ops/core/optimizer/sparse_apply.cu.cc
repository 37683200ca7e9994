#include "tf_ops/core/optimizer/sparse_apply.h"

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/rows/pair_sums.cu.h"
#include "tf_ops/core/lookup/stages/unique.cu.h"
#include "tf_ops/core/optimizer/array_rows.cu.h"

namespace fused_embedding {
namespace {

// One of several tables whose indices are laid end to end.
struct LaidOutIndices {
  IdSpan indices;
  int64_t num_rows = 0;  // of the table
  int64_t first = 0;
  Range blocks;
};

// What a Plan reads back of a table.
struct IndicesReport {
  FirstPosition first_bad;   // of an index outside
  int64_t first_unique = 0;  // distinct rows of the tables before
};

__global__ void ReadIndicesKernel(const LaidOutIndices* __restrict__ tables, int64_t num_tables,
                                  int64_t* __restrict__ rows, bool* __restrict__ is_inside,
                                  IndicesReport* reports) {
  const LaidOutIndices& table = ItemOfBlock(tables, num_tables, &LaidOutIndices::blocks);
  IndicesReport* report = reports + (&table - tables);
  ForEachItem(table.blocks, table.indices.size, [&](int64_t i) {
    const int64_t row = table.indices[i];
    const bool exists = IsIndex(row, table.num_rows);
    rows[table.first + i] = row;
    is_inside[table.first + i] = exists;
    if (!exists) report->first_bad.Add(i);
  });
}

// The report behind the last table's is for their sum.
__global__ void ReportUniquesKernel(const LaidOutIndices* __restrict__ tables, int64_t num_tables,
                                    int64_t num_indices, const int32_t* __restrict__ numbers,
                                    IndicesReport* __restrict__ reports) {
  for (int64_t t = ThreadOfGrid(); t <= num_tables; t += NumThreadsOfGrid()) {
    reports[t].first_unique = numbers[t < num_tables ? tables[t].first : num_indices];
  }
}

Status CheckReport(const GpuExec& exec, const SparseUpdate& update, int64_t table,
                   const IndicesReport& report) {
  if (!report.first_bad.is_found()) return Status();
  const int64_t position = report.first_bad.position();
  int64_t index = 0;
  FE_RETURN_IF_ERROR(ReadId(exec, update.indices, position, &index));
  return NoSuchIndex(index, position, table, update.num_rows);
}

// Lays the indices end to end, checks and numbers them, and waits for `reports` [num_tables + 1].
Status NumberRows(const GpuExec& exec, const std::vector<SparseUpdate>& updates,
                  std::vector<IndicesReport>* reports, GpuSparseApplyPlan* plan) {
  std::vector<LaidOutIndices> tables;
  std::vector<int64_t> ends;
  int64_t num_blocks = 0;
  plan->first_rows.assign(1, 0);
  for (const SparseUpdate& update : updates) {
    tables.push_back({update.indices, update.num_rows, plan->first_rows.back(),
                      TakeBlocks(update.indices.size, kItemsPerBlock, &num_blocks)});
    // A sum of sizes of arrays in memory.
    plan->first_rows.push_back(plan->first_rows.back() + update.indices.size);
    ends.push_back(plan->first_rows.back());
  }
  const int64_t num_indices = plan->first_rows.back();
  const int64_t num_tables = static_cast<int64_t>(tables.size());
  DeviceBuffer<LaidOutIndices> device_tables;
  DeviceBuffer<IndicesReport> device_reports;
  DeviceBuffer<bool> is_inside;
  reports->assign(tables.size() + 1, {});
  FE_RETURN_IF_ERROR(Upload<LaidOutIndices>(exec, AsSpan(tables), &device_tables));
  FE_RETURN_IF_ERROR(Upload<IndicesReport>(exec, AsSpan(*reports), &device_reports));
  FE_RETURN_IF_ERROR(plan->rows.Allocate(exec, num_indices));
  FE_RETURN_IF_ERROR(is_inside.Allocate(exec, num_indices));
  FE_RETURN_IF_ERROR(LaunchBlocks(exec, num_blocks, ReadIndicesKernel, device_tables.data(),
                                  num_tables, plan->rows.data(), is_inside.data(),
                                  device_reports.data()));
  FE_RETURN_IF_ERROR(NumberFirst<int64_t>(exec, {plan->rows.span(), is_inside.data(), AsSpan(ends)},
                                          &plan->unique));
  FE_RETURN_IF_ERROR(Launch(exec, num_tables + 1, ReportUniquesKernel, device_tables.data(),
                            num_tables, num_indices, plan->unique.numbers.data(),
                            device_reports.data()));
  Readback readback;
  readback.Add<IndicesReport>(device_reports.data(), AsSpan(*reports));
  return readback.Wait(exec);
}

// --- Tables with repeats ---

// A table whose rows are named more than once, among all positions and distinct rows of the plan,
// and among those of such tables alone.
template <typename T>
struct RepeatingTable : LaidOutIndices {
  const T* grads = nullptr;  // [indices.size, dim]
  int64_t dim = 0;
  int64_t first_unique = 0;
  int64_t num_distinct = 0;
  int64_t first_pair = 0, first_distinct = 0;  // among those of such tables
  int64_t first_sum = 0;                       // of a value
};

// What is written of the occurrences of rows, and of the distinct rows.
template <typename T>
struct Occurrences {
  DeviceBuffer<ScaledRow<T>> pairs;  // [num_pairs] gradients
  DeviceBuffer<uint32_t> distinct;   // [num_pairs] which of the distinct rows each is of
  DeviceBuffer<int64_t> rows;        // [num_distinct]
  DeviceBuffer<T> sums;              // [num_distinct, dim] of one table after the other
};

template <typename T>
struct OccurrencesOut {
  ScaledRow<T>* pairs;
  uint32_t* distinct;
  int64_t* rows;
};

template <typename T>
__global__ void CollectOccurrencesKernel(const RepeatingTable<T>* __restrict__ tables,
                                         int64_t num_tables, const uint32_t* __restrict__ first,
                                         const int32_t* __restrict__ numbers,
                                         OccurrencesOut<T> out) {
  const RepeatingTable<T>& table = ItemOfBlock(tables, num_tables, &LaidOutIndices::blocks);
  ForEachItem(table.blocks, table.indices.size, [&](int64_t i) {
    const int64_t position = table.first + i;
    const int64_t distinct = numbers[first[position]] - table.first_unique + table.first_distinct;
    out.pairs[table.first_pair + i] = {table.grads + i * table.dim, 1};
    out.distinct[table.first_pair + i] = static_cast<uint32_t>(distinct);
    if (first[position] == position) out.rows[distinct] = table.indices[i];
  });
}

// Sums the gradients of each distinct row, in ComputeType, and rounds the sum once.
template <typename T>
Status SumOccurrences(const GpuExec& exec, const GpuUniquePlan& unique,
                      const std::vector<RepeatingTable<T>>& tables, Occurrences<T>* out) {
  if (tables.empty()) return Status();
  const RepeatingTable<T>& last = tables.back();
  const int64_t num_pairs = last.first_pair + last.indices.size;
  const int64_t num_distinct = last.first_distinct + last.num_distinct;
  FE_RETURN_IF_ERROR(out->pairs.Allocate(exec, num_pairs));
  FE_RETURN_IF_ERROR(out->distinct.Allocate(exec, num_pairs));
  FE_RETURN_IF_ERROR(out->rows.Allocate(exec, num_distinct));
  FE_RETURN_IF_ERROR(out->sums.Allocate(exec, last.first_sum + last.num_distinct * last.dim));
  DeviceBuffer<RepeatingTable<T>> device_tables;
  FE_RETURN_IF_ERROR(Upload<RepeatingTable<T>>(exec, AsSpan(tables), &device_tables));
  FE_RETURN_IF_ERROR(
      LaunchBlocks(exec, last.blocks.end, CollectOccurrencesKernel<T>, device_tables.data(),
                   device_tables.size(), unique.first.data(), unique.numbers.data(),
                   OccurrencesOut<T>{out->pairs.data(), out->distinct.data(), out->rows.data()}));
  SortedKeys sorted;
  DeviceBuffer<int32_t> splits;
  FE_RETURN_IF_ERROR(splits.Allocate(exec, num_distinct + 1));
  FE_RETURN_IF_ERROR(SortByKey(exec, out->distinct.span(), num_distinct, &sorted));
  FE_RETURN_IF_ERROR(SplitByKey(exec, sorted.keys.span(), splits.span()));
  std::vector<SumTable<T>> sum_tables;
  for (const RepeatingTable<T>& table : tables) {
    SumTable<T> sums;
    sums.first_unique = table.first_distinct;
    sums.num_unique = table.num_distinct;
    sums.max_pairs = table.indices.size;
    sums.dim = table.dim;
    sums.sink.out = out->sums.data() + table.first_sum;
    sums.is_full_width = HasFullWidth<T>(table.dim, reinterpret_cast<uintptr_t>(table.grads) |
                                                        reinterpret_cast<uintptr_t>(sums.sink.out));
    sum_tables.push_back(sums);
  }
  return SumPairs<T>(exec,
                     {out->pairs.data(), sorted.keys.data(), sorted.order.data(), splits.data()},
                     sum_tables);
}

// --- The step ---

template <typename T>
RepeatingTable<T> RepeatingTableOf(const SparseUpdate& update, const GpuSparseApplyPlan& plan,
                                   size_t t, const std::vector<RepeatingTable<T>>& before) {
  RepeatingTable<T> table;
  table.indices = update.indices;
  table.first = plan.first_rows[t];
  table.grads = reinterpret_cast<const T*>(update.grads);
  table.dim = update.dim;
  table.first_unique = plan.first_uniques[t];
  table.num_distinct = plan.first_uniques[t + 1] - table.first_unique;
  int64_t num_blocks = 0;
  if (!before.empty()) {
    const RepeatingTable<T>& last = before.back();
    const int64_t end = last.first_sum + last.num_distinct * last.dim;
    table.first_pair = last.first_pair + last.indices.size;
    table.first_distinct = last.first_distinct + last.num_distinct;
    // Rows of 16 bytes stay aligned behind those of a table of another dim.
    table.first_sum = (end + kFullWidth<T> - 1) / kFullWidth<T> * kFullWidth<T>;
    num_blocks = last.blocks.end;
  }
  table.blocks = TakeBlocks(update.indices.size, kItemsPerBlock, &num_blocks);
  return table;
}

// Updates the tables of one type.
template <typename T>
Status UpdateTablesOf(const GpuExec& exec, ValueType type, const SparseApplyInput& in,
                      const GpuSparseApplyPlan& plan) {
  std::vector<ArrayRows<T>> steps;
  std::vector<RepeatingTable<T>> repeating;
  std::vector<size_t> steps_with_repeats;
  for (size_t t = 0; t < in.updates.size(); ++t) {
    const SparseUpdate& update = in.updates[t];
    if (update.type != type || update.indices.size == 0 || update.dim == 0) continue;
    ArrayRows<T> step;
    step.table.values = reinterpret_cast<T*>(update.values);
    for (size_t k = 0; k < kMaxArraySlots; ++k) step.table.slots[k] = update.slots[k];
    step.table.dim = update.dim;
    step.rows = plan.rows.data() + plan.first_rows[t];
    step.grads = reinterpret_cast<const T*>(update.grads);
    step.num_rows = plan.first_uniques[t + 1] - plan.first_uniques[t];
    if (step.num_rows < update.indices.size) {
      repeating.push_back(RepeatingTableOf<T>(update, plan, t, repeating));
      steps_with_repeats.push_back(steps.size());
    }
    steps.push_back(step);
  }
  if (steps.empty()) return Status();
  Occurrences<T> occurrences;
  FE_RETURN_IF_ERROR(SumOccurrences(exec, plan.unique, repeating, &occurrences));
  for (size_t i = 0; i < repeating.size(); ++i) {
    ArrayRows<T>& step = steps[steps_with_repeats[i]];
    step.rows = occurrences.rows.data() + repeating[i].first_distinct;
    step.grads = occurrences.sums.data() + repeating[i].first_sum;
  }
  return UpdateArrayRows<T>(exec, in.rule, in.hyperparameters, steps);
}

}  // namespace

Status PlanSparseApply(const GpuExec& exec, const SparseApplyInput& in, GpuSparseApplyPlan* plan) {
  FE_RETURN_IF_ERROR(CheckRuleForArrays(in.rule));
  FE_RETURN_IF_ERROR(CheckHyperparameters(in.rule, in.hyperparameters));
  std::vector<IndicesReport> reports;
  FE_RETURN_IF_ERROR(NumberRows(exec, in.updates, &reports, plan));
  for (size_t t = 0; t < in.updates.size(); ++t) {
    FE_RETURN_IF_ERROR(CheckReport(exec, in.updates[t], static_cast<int64_t>(t), reports[t]));
  }
  plan->first_uniques.clear();
  for (const IndicesReport& report : reports) plan->first_uniques.push_back(report.first_unique);
  return Status();
}

Status RunSparseApply(const GpuExec& exec, const SparseApplyInput& in,
                      const GpuSparseApplyPlan& plan) {
  FE_RETURN_IF_ERROR(UpdateTablesOf<float>(exec, ValueType::kFloat, in, plan));
  FE_RETURN_IF_ERROR(UpdateTablesOf<double>(exec, ValueType::kDouble, in, plan));
  FE_RETURN_IF_ERROR(UpdateTablesOf<Half>(exec, ValueType::kHalf, in, plan));
  return UpdateTablesOf<BFloat16>(exec, ValueType::kBFloat16, in, plan);
}

}  // namespace fused_embedding
