#include "tf_ops/core/optimizer/sparse_apply.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/base/tasks.h"
#include "tf_ops/core/lookup/rows/row_sum.h"
#include "tf_ops/core/lookup/stages/unique.h"
#include "tf_ops/core/optimizer/rules.h"
#include "tf_ops/core/optimizer/update_row.h"

namespace fused_embedding {
namespace {

// Rows in flight: 8 to 32 were equal within noise.
constexpr int64_t kRowsAhead = 16;
// From so many rows on, the distinct ones of a table are worth all threads.
constexpr int64_t kManyRows = 32768;
constexpr int64_t kRowNs = 5;

// Rows [begin, end) of a plan, of one table.
struct RowRange {
  const SparseUpdate* update = nullptr;
  DistinctRows* distinct = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

// --- The rules, on rows of arrays ---

template <int64_t kVectorBytes, typename T, typename Rule, size_t... kSlot>
FE_INLINE void UpdateEachRow(const Rule& rule, const RowRange& range,
                             std::index_sequence<kSlot...>) {
  const SparseUpdate& update = *range.update;
  const int64_t dim = update.dim;
  const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(T));
  const Span<const int64_t> rows = range.distinct->rows;
  const char* grads = range.distinct->has_repeats ? range.distinct->sums.span().data : update.grads;
  const auto prefetch = [&](int64_t i) FE_INLINE_LAMBDA {
    if (i >= range.end) return;
    PrefetchRow(update.values + rows[i] * row_bytes, row_bytes);
    (PrefetchRow(update.slots[kSlot] + rows[i] * row_bytes, row_bytes), ...);
  };
  for (int64_t i = 0; i < kRowsAhead; ++i) prefetch(range.begin + i);
  for (int64_t i = range.begin; i < range.end; ++i) {
    prefetch(i + kRowsAhead);
    // Stock keeps the slots of a 16-bit variable in 16 bits, too.
    UpdateRow<kVectorBytes>(rule, reinterpret_cast<T*>(update.values + rows[i] * row_bytes),
                            reinterpret_cast<const T*>(grads + i * row_bytes), dim,
                            reinterpret_cast<T*>(update.slots[kSlot] + rows[i] * row_bytes)...);
  }
}

using UpdateRange = void (*)(const double* hyperparameters, const RowRange& range);

template <typename Rule, typename T>
void UpdateRangeBy(const double* hyperparameters, const RowRange& range) {
  const Rule rule(hyperparameters);
  constexpr auto kSlots = std::make_index_sequence<Rule::kSlots.size()>();
  WithSimd([&](auto vector_bytes)
               FE_INLINE_LAMBDA { UpdateEachRow<vector_bytes(), T>(rule, range, kSlots); });
}

// Null for a rule that does not work value by value.
template <typename Rule, typename T>
constexpr UpdateRange UpdateRangeOf() {
  if constexpr (WorksValueByValue<Rule>()) {
    static_assert(Rule::kSlots.size() <= kMaxArraySlots);
    return UpdateRangeBy<Rule, T>;
  } else {
    return nullptr;
  }
}

template <typename T>
UpdateRange UpdateRangeOfRule(int64_t rule) {
#define FE_UPDATE_RANGE(Rule) UpdateRangeOf<Rule<ComputeType<T>>, T>(),
  static constexpr UpdateRange kFunctions[] = {FE_FOR_EACH_RULE(FE_UPDATE_RANGE)};
#undef FE_UPDATE_RANGE
  return kFunctions[rule];
}

// --- Sums of the gradients of a row ---

// Adds the occurrences of each row in the range, in ComputeType, and rounds the sum once.
template <int64_t kVectorBytes, typename T>
FE_INLINE void SumEachRow(const RowRange& range) {
  using C = ComputeType<T>;
  const int64_t dim = range.update->dim;
  const PairGroups& occurrences = range.distinct->occurrences;
  const T* grads = reinterpret_cast<const T*>(range.update->grads);
  T* sums = reinterpret_cast<T*>(range.distinct->sums.data());
  for (int64_t row = range.begin; row < range.end; ++row) {
    ForEachRowSum<kVectorBytes, C>(dim, [&](auto num_values, int64_t offset) FE_INLINE_LAMBDA {
      using Sum = RowSum<num_values(), kVectorBytes, C>;
      const auto add = [&](int64_t i, Sum* to) FE_INLINE_LAMBDA {
        to->template Add<false>(C{1}, grads + occurrences.pair(i) * dim + offset);
      };
      Sum sum;
      AddUpTerms(occurrences.begin(row), occurrences.end(row), add, &sum);
      sum.Store(sums + row * dim + offset);
    });
  }
}

template <typename T>
void UpdateRangeOfType(const SparseApplyInput& in, const RowRange& range) {
  if (range.distinct->has_repeats) {
    WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA { SumEachRow<vector_bytes(), T>(range); });
  }
  UpdateRangeOfRule<T>(in.rule.index)(in.hyperparameters.data, range);
}

void UpdateTableRows(const SparseApplyInput& in, const RowRange& range) {
  switch (range.update->type) {
    case ValueType::kFloat:
      return UpdateRangeOfType<float>(in, range);
    case ValueType::kDouble:
      return UpdateRangeOfType<double>(in, range);
    case ValueType::kHalf:
      return UpdateRangeOfType<Half>(in, range);
    case ValueType::kBFloat16:
      return UpdateRangeOfType<BFloat16>(in, range);
  }
}

// --- Finding the distinct rows ---

Status ReadIndices(const IdSpan& indices, DistinctRows* distinct) {
  if (!indices.is_int32) {
    distinct->rows = {static_cast<const int64_t*>(indices.data), indices.size};
    return Status();
  }
  FE_RETURN_IF_ERROR(distinct->owned_rows.Allocate(indices.size));
  std::copy_n(static_cast<const int32_t*>(indices.data), indices.size, distinct->owned_rows.data());
  distinct->rows = distinct->owned_rows.span();
  return Status();
}

// Checks rows, and says whether each is above the one before: such rows are distinct.
Status CheckRows(Span<const int64_t> rows, int64_t table, int64_t num_rows, bool* is_ascending) {
  bool is_sorted = true, is_inside = true;
  int64_t previous = -1;
  for (const int64_t row : rows) {
    // Negative indices are huge unsigned ones, so one comparison checks both limits.
    is_inside &= static_cast<uint64_t>(row) < static_cast<uint64_t>(num_rows);
    is_sorted &= row > previous;
    previous = row;
  }
  *is_ascending = is_sorted;
  if (is_inside) return Status();
  const int64_t* bad = std::find_if(rows.begin(), rows.end(),
                                    [&](int64_t row) { return row < 0 || row >= num_rows; });
  return NoSuchIndex(*bad, bad - rows.begin(), table, num_rows);
}

// Whether FindRepeats, which one thread does, costs less than numbering the rows. Its bits are at
// most 64 bytes for each of them.
bool AreBitsCheaper(const CpuExec& exec, int64_t num_rows, int64_t table_rows) {
  return table_rows / 512 <= num_rows && exec.num_threads() <= 4;
}

// Whether a row is there twice. The gradient of a lookup has each of its rows once, in any order,
// and this is then all that there is to find out.
Status FindRepeats(Span<const int64_t> rows, int64_t table_rows, bool* has_repeats) {
  Buffer<uint64_t> seen;
  FE_RETURN_IF_ERROR(seen.Allocate(table_rows / 64 + 1));
  std::fill(seen.span().begin(), seen.span().end(), 0);
  *has_repeats = false;
  for (const int64_t row : rows) {
    uint64_t& word = seen[row / 64];
    const uint64_t bit = uint64_t{1} << (row % 64);
    *has_repeats = (word & bit) != 0;
    if (*has_repeats) break;
    word |= bit;
  }
  return Status();
}

// Leaves the rows as they are if they turn out to be distinct.
Status MergeRepeats(const CpuExec& exec, const SparseUpdate& update, DistinctRows* distinct) {
  const Span<const int64_t> rows = distinct->rows;
  if (rows.size > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("a gradient can have at most ", std::numeric_limits<int32_t>::max(),
                           " rows, got ", rows.size, "; use a smaller batch");
  }
  Buffer<int32_t> unique_idx;
  FE_RETURN_IF_ERROR(unique_idx.Allocate(rows.size));
  UniquePlan<int64_t> unique;
  FE_RETURN_IF_ERROR(PlanUnique(exec, rows, unique_idx.span(), &unique));
  if (unique.num_unique == rows.size) return Status();
  const Span<const int32_t> groups = unique_idx.span();
  FE_RETURN_IF_ERROR(GroupByUnique(exec, groups, unique.num_unique, &distinct->occurrences));
  FE_RETURN_IF_ERROR(
      distinct->sums.Allocate(unique.num_unique * update.dim * ValueBytes(update.type)));
  distinct->has_repeats = true;
  distinct->owned_rows = std::move(unique.unique_ids);
  distinct->rows = {distinct->owned_rows.data(), unique.num_unique};
  return Status();
}

Status PlanTable(const CpuExec& exec, const SparseUpdate& update, int64_t table,
                 DistinctRows* distinct) {
  FE_RETURN_IF_ERROR(ReadIndices(update.indices, distinct));
  bool is_ascending = false;
  FE_RETURN_IF_ERROR(CheckRows(distinct->rows, table, update.num_rows, &is_ascending));
  bool may_repeat = !is_ascending;
  if (may_repeat && AreBitsCheaper(exec, distinct->rows.size, update.num_rows)) {
    FE_RETURN_IF_ERROR(FindRepeats(distinct->rows, update.num_rows, &may_repeat));
  }
  return may_repeat ? MergeRepeats(exec, update, distinct) : Status();
}

Status PlanTables(const CpuExec& exec, const std::vector<SparseUpdate>& updates,
                  std::vector<DistinctRows>* tables) {
  tables->resize(updates.size());
  std::vector<int64_t> sizes;
  for (const SparseUpdate& update : updates) sizes.push_back(update.indices.size);
  return RunTasks(exec, AsSpan(sizes), kManyRows, kRowNs,
                  [&](const CpuExec& table_exec, int64_t i) {
                    const auto table = static_cast<size_t>(i);
                    return PlanTable(table_exec, updates[table], i, &(*tables)[table]);
                  });
}

}  // namespace

Status NoSuchIndex(int64_t index, int64_t position, int64_t table, int64_t num_rows) {
  return InvalidArgument("index ", index, " at position ", position, " of indices[", table,
                         "] is outside [0, ", num_rows,
                         "), the rows of its variable; no variable was changed: give indices of "
                         "rows that the variable has");
}

Status CheckRuleForArrays(const RuleInfo& rule) {
  if (rule.works_value_by_value) return Status();
  return InvalidArgument("rule ", rule.name,
                         " keeps one number a row, but slots of the shape of the variable are "
                         "required; use it on an EmbeddingVariable");
}

Status PlanSparseApply(const CpuExec& exec, const SparseApplyInput& in, SparseApplyPlan* plan) {
  FE_RETURN_IF_ERROR(CheckRuleForArrays(in.rule));
  FE_RETURN_IF_ERROR(CheckHyperparameters(in.rule, in.hyperparameters));
  FE_RETURN_IF_ERROR(PlanTables(exec, in.updates, &plan->tables));
  plan->splits.assign(1, 0);
  for (const DistinctRows& table : plan->tables) {
    plan->splits.push_back(plan->splits.back() + table.rows.size);
  }
  return Status();
}

void RunSparseApply(const CpuExec& exec, const SparseApplyInput& in, SparseApplyPlan* plan) {
  const std::vector<int64_t>& splits = plan->splits;
  const int64_t num_rows = splits.back();
  int64_t num_bytes = 0;
  for (size_t i = 0; i < in.updates.size(); ++i) {
    const SparseUpdate& update = in.updates[i];
    num_bytes += plan->tables[i].rows.size * update.dim * ValueBytes(update.type);
  }
  const int64_t num_arrays = 2 + in.rule.num_slots;  // values, gradients, slots
  const int64_t row_ns = 20 + num_arrays * num_bytes / (16 * std::max<int64_t>(num_rows, 1));
  exec.ParallelFor(num_rows, row_ns, [&](int64_t begin, int64_t end) {
    auto next = std::upper_bound(splits.begin(), splits.end(), begin);
    while (begin < end) {
      const auto table = static_cast<size_t>(next - splits.begin() - 1);
      const int64_t first = splits[table], stop = std::min(end, *next);
      UpdateTableRows(in, {&in.updates[table], &plan->tables[table], begin - first, stop - first});
      begin = stop;
      ++next;
    }
  });
}

}  // namespace fused_embedding
