#include "tf_ops/core/lookup/group/group_lookup_grad.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/base/tasks.h"
#include "tf_ops/core/lookup/group/column_pairs.h"
#include "tf_ops/core/lookup/rows/row_grad.h"

namespace fused_embedding {
namespace {

// Gradients in flight, as in gather.cc.
constexpr int64_t kGradientsAhead = 24;
// Pairs of a part of a sum: enough work to be worth another thread.
constexpr int64_t kPartPairs = 2048;
// Below this many pairs a table is planned by one thread, beside other tables.
constexpr int64_t kManyPairs = 32768;
constexpr int64_t kPairNs = 10;

// What is known of each table before its pairs are.
struct ColumnsOfTable {
  std::vector<int64_t> columns;
  int64_t max_pairs = 0;
};

// As PlanUnique, of positions in `num_rows` distinct rows.
Status NumberPositions(Span<const int64_t> positions, int64_t num_rows, Span<int32_t> unique_idx,
                       UniquePlan<int64_t>* plan) {
  FE_RETURN_IF_ERROR(CheckDistinctRows(num_rows, positions.size));
  std::copy(positions.begin(), positions.end(), unique_idx.begin());
  plan->num_unique = num_rows;
  FE_RETURN_IF_ERROR(plan->unique_ids.Allocate(num_rows));
  std::iota(plan->unique_ids.span().begin(), plan->unique_ids.span().end(), 0);
  return Status();
}

template <typename T>
Status PlanTable(const CpuExec& exec, const GroupGradInput<T>& in,
                 const std::vector<PairOrder>& orders, const ColumnsOfTable& table,
                 TableGradPlan<T>* plan) {
  Buffer<int64_t> ids;
  FE_RETURN_IF_ERROR(ids.Allocate(table.max_pairs));
  FE_RETURN_IF_ERROR(plan->pairs.Allocate(table.max_pairs));
  double max_norm = -1;
  int64_t num_rows = 0, num_pairs = 0;
  for (const int64_t c : table.columns) {
    const GroupColumn<T>& column = in.columns[c];
    ColumnPairs<T> pairs(column, orders[static_cast<size_t>(c)], in.combined_grads[c]);
    FE_RETURN_IF_ERROR(
        pairs.Collect(exec, ids.data() + num_pairs, plan->pairs.data() + num_pairs, &num_pairs));
    plan->limits.push_back({num_pairs, column.max_norm});
    max_norm = std::max(max_norm, column.max_norm);
    plan->table = column.table;
    plan->dim = column.dim;
    num_rows = column.table_rows;
  }
  if (max_norm < 0) plan->limits.clear();
  plan->num_pairs = num_pairs;
  FE_RETURN_IF_ERROR(plan->unique_idx.Allocate(plan->num_pairs));
  const Span<const int64_t> used_ids = {ids.data(), plan->num_pairs};
  const Span<int32_t> unique_idx = plan->unique_idx.span();
  FE_RETURN_IF_ERROR(in.ids_are_positions
                         ? NumberPositions(used_ids, num_rows, unique_idx, &plan->unique)
                         : PlanUnique(exec, used_ids, unique_idx, &plan->unique));
  const int64_t num_unique = plan->unique.num_unique;
  plan->is_grouped = !IsSmallGrad<T>(plan->num_pairs, num_unique, plan->dim, max_norm);
  if (!plan->is_grouped) return Status();
  return GroupByUnique(exec, plan->unique_idx.span(), num_unique, &plan->by_unique);
}

template <typename T>
Status FindColumnsOfTables(const GroupGradInput<T>& in, const std::vector<PairOrder>& orders,
                           std::vector<ColumnsOfTable>* tables) {
  tables->resize(static_cast<size_t>(in.num_tables));
  for (int64_t c = 0; c < in.columns.size; ++c) {
    ColumnsOfTable& table = (*tables)[static_cast<size_t>(in.table_of_column[c])];
    table.columns.push_back(c);
    const int64_t max_pairs =
        ColumnPairs<T>::MaxPairs(in.columns[c], orders[static_cast<size_t>(c)]);
    if (__builtin_add_overflow(table.max_pairs, max_pairs, &table.max_pairs)) {
      return ResourceExhausted("too many ids; use a smaller batch");
    }
  }
  for (const ColumnsOfTable& table : *tables) FE_RETURN_IF_ERROR(CheckNumPairs(table.max_pairs));
  return Status();
}

// Cuts the sums of ids with many pairs.
template <typename T>
Status PlanParts(GroupGradPlan<T>* plan) {
  int64_t num_sums = 0;
  for (size_t t = 0; t < plan->tables.size(); ++t) {
    const TableGradPlan<T>& table = plan->tables[t];
    if (!table.is_grouped || !table.limits.empty()) continue;
    for (int64_t u = 0; u < table.unique.num_unique; ++u) {
      const int64_t end = table.by_unique.end(u);
      int64_t begin = table.by_unique.begin(u);
      if (end - begin <= 2 * kPartPairs) continue;
      for (; begin < end; begin += kPartPairs, num_sums += table.dim) {
        const int64_t part_end = std::min(end, begin + kPartPairs);
        plan->parts.push_back({static_cast<int64_t>(t), u, begin, part_end, num_sums});
      }
    }
  }
  return plan->sums.Allocate(num_sums);
}

template <typename T>
class TableGradient {
 public:
  using C = ComputeType<T>;

  TableGradient(const TableGradPlan<T>& plan, const TableGrad<T>& out) : plan_(plan), out_(out) {}

  // All of a small table: additions to memory that stays in the cache.
  FE_INLINE void AddPairByPair() const {
    const int64_t dim = plan_.dim;
    std::memset(out_.rows_grad, 0, static_cast<size_t>(plan_.unique.num_unique * dim) * sizeof(T));
    ForEachBlock(dim, [&](auto width_constant, int64_t offset, int64_t width) FE_INLINE_LAMBDA {
      constexpr int64_t kWidth = decltype(width_constant)::value;
      for (int64_t k = 0; k < plan_.num_pairs; ++k) {
        // Gradients of columns side by side are far apart: the hardware does not see it coming.
        if (k + kGradientsAhead < plan_.num_pairs) {
          const T* ahead = plan_.pairs.span()[k + kGradientsAhead].row;
          if (ahead) PrefetchRow(ahead + offset, width * static_cast<int64_t>(sizeof(T)));
        }
        const ScaledRow<T>& pair = plan_.pairs.span()[k];
        if (pair.row == nullptr) continue;
        T* row_grad = out_.rows_grad + plan_.unique_idx.span()[k] * dim;
        AddScaled<kWidth>(pair.factor, pair.row + offset, width, row_grad + offset);
      }
    });
  }

  // Rows of the unique ids [begin, end) of a grouped table, those in parts excepted.
  template <int64_t kVectorBytes>
  FE_INLINE void Compute(int64_t begin, int64_t end) const {
    const PairGroups& groups = plan_.by_unique;
    const int64_t last = groups.end(end - 1);
    for (int64_t u = begin; u < end; ++u) {
      const PairRange range{groups.begin(u), groups.end(u), last};
      T* row_grad = out_.rows_grad + u * plan_.dim;
      if (!plan_.limits.empty()) {
        StoreClipped<kVectorBytes>(plan_.unique.unique_ids.span()[u], range, row_grad);
      } else if (range.end - range.begin <= 2 * kPartPairs) {
        StoreRowGrad<kVectorBytes, T>({}, plan_.dim, range, *this, row_grad);
      }
    }
  }

  template <int64_t kVectorBytes>
  FE_INLINE void AddPart(int64_t begin, int64_t end, C* part) const {
    StoreRowGrad<kVectorBytes, T>({}, plan_.dim, {begin, end, end}, *this, part);
  }

  FE_INLINE const ScaledRow<T>& grad(int64_t i) const {
    return plan_.pairs.span()[plan_.by_unique.pair(i)];
  }
  FE_INLINE const T* row_to_fetch(int64_t i) const { return grad(i).row; }

 private:
  // Columns may clip the same embedding to different norms: their pairs follow each other.
  template <int64_t kVectorBytes>
  FE_INLINE void StoreClipped(int64_t id, const PairRange& range, T* row_grad) const {
    const int64_t dim = plan_.dim;
    const T* embedding = plan_.table + id * dim;
    // A vector at a time: with more of them this rare case is most of what is compiled.
    constexpr int64_t kLanes = kVectorBytes / int64_t{sizeof(C)};
    ForEachVector<kLanes>(0, dim, [&](auto lanes, int64_t offset) FE_INLINE_LAMBDA {
      RowSum<lanes(), kVectorBytes, C> sum;
      int64_t begin = range.begin;
      for (const auto& limit : plan_.limits) {
        int64_t end = begin;
        while (end < range.end && plan_.by_unique.pair(end) < limit.end) ++end;
        if (begin == end) continue;
        const PairRange of_column{begin, end, end};
        const auto clip = MakeClipGrad(embedding, dim, limit.max_norm, of_column, *this);
        RowSum<lanes(), kVectorBytes, C> column_sum;
        AddUpGrads(clip, dim, of_column, *this, offset, &column_sum);
        sum.Add(column_sum);
        begin = end;
      }
      sum.Store(row_grad + offset);
    });
  }

  const TableGradPlan<T>& plan_;
  const TableGrad<T>& out_;
};

// The first unique id at or after this position of its pairs and ids: see RowAtPosition.
int64_t UniqueAtPosition(const PairGroups& groups, int64_t num_unique, int64_t position) {
  int64_t low = 0, high = num_unique;
  while (low < high) {
    const int64_t u = low + (high - low) / 2;
    if (u + groups.end(u) < position) {
      low = u + 1;
    } else {
      high = u;
    }
  }
  return low;
}

template <typename T>
void RunSmallTables(const CpuExec& exec, const GroupGradPlan<T>& plan,
                    Span<const TableGrad<T>> grads) {
  std::vector<size_t> small;
  int64_t num_values = 0;
  for (size_t t = 0; t < plan.tables.size(); ++t) {
    if (plan.tables[t].is_grouped) continue;
    small.push_back(t);
    num_values += plan.tables[t].num_pairs * (8 + plan.tables[t].dim);
  }
  const int64_t num_small = static_cast<int64_t>(small.size());
  const int64_t table_ns = num_values / (4 * std::max<int64_t>(num_small, 1));
  exec.ParallelFor(num_small, table_ns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const size_t t = small[static_cast<size_t>(i)];
      const TableGradient<T> gradient(plan.tables[t], grads[static_cast<int64_t>(t)]);
      if constexpr (std::is_same_v<T, ComputeType<T>>) {
        WithSimd([&]() FE_INLINE_LAMBDA { gradient.AddPairByPair(); });
      }
    }
  });
}

template <typename T>
void RunGroupedTables(const CpuExec& exec, const GroupGradPlan<T>& plan,
                      Span<const TableGrad<T>> grads) {
  ColumnWork work;
  int64_t max_dim = 0;
  for (const TableGradPlan<T>& table : plan.tables) {
    const bool has_work = table.is_grouped && table.dim > 0;
    (void)work.Add(has_work ? table.num_pairs + table.unique.num_unique : 0);  // both < 2^31
    max_dim = std::max(max_dim, table.dim);
  }
  exec.ParallelFor(work.total(), 4 + max_dim / 8, [&](int64_t begin, int64_t end) {
    work.ForEach(begin, end, [&](int64_t t, int64_t first, int64_t last) {
      const TableGradPlan<T>& table = plan.tables[static_cast<size_t>(t)];
      const int64_t num_unique = table.unique.num_unique;
      const int64_t first_id = UniqueAtPosition(table.by_unique, num_unique, first);
      const int64_t end_id = UniqueAtPosition(table.by_unique, num_unique, last);
      if (first_id == end_id) return;
      const TableGradient<T> gradient(table, grads[t]);
      WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
        gradient.template Compute<vector_bytes()>(first_id, end_id);
      });
    });
  });
}

template <typename T>
void RunParts(const CpuExec& exec, GroupGradPlan<T>* plan, Span<const TableGrad<T>> grads) {
  using C = ComputeType<T>;
  const auto& parts = plan->parts;
  exec.ParallelFor(static_cast<int64_t>(parts.size()), 16 * kPartPairs,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const auto& part = parts[static_cast<size_t>(i)];
                       const TableGradient<T> gradient(
                           plan->tables[static_cast<size_t>(part.table)], grads[part.table]);
                       C* sums = plan->sums.data() + part.sums;
                       WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
                         gradient.template AddPart<vector_bytes()>(part.begin, part.end, sums);
                       });
                     }
                   });
  for (size_t i = 0; i < parts.size();) {
    const auto& first = parts[i];
    const int64_t dim = plan->tables[static_cast<size_t>(first.table)].dim;
    const size_t begin = i;
    while (i < parts.size() && parts[i].table == first.table && parts[i].unique == first.unique)
      ++i;
    T* row_grad = grads[first.table].rows_grad + first.unique * dim;
    for (int64_t d = 0; d < dim; ++d) {
      double sum = 0;
      for (size_t part = begin; part < i; ++part) sum += plan->sums[parts[part].sums + d];
      Store(static_cast<C>(sum), &row_grad[d]);
    }
  }
}

}  // namespace

template <typename T>
Status PlanGroupLookupGrad(const CpuExec& exec, const GroupGradInput<T>& in,
                           GroupGradPlan<T>* plan) {
  std::vector<PairOrder> orders;
  FE_RETURN_IF_ERROR(CheckColumns(exec, in.columns, &orders));
  std::vector<ColumnsOfTable> tables;
  FE_RETURN_IF_ERROR(FindColumnsOfTables(in, orders, &tables));
  plan->tables.resize(tables.size());
  std::vector<int64_t> sizes;
  for (const ColumnsOfTable& table : tables) sizes.push_back(table.max_pairs);
  FE_RETURN_IF_ERROR(
      RunTasks(exec, AsSpan(sizes), kManyPairs, kPairNs, [&](const CpuExec& table_exec, int64_t t) {
        const size_t table = static_cast<size_t>(t);
        return PlanTable(table_exec, in, orders, tables[table], &plan->tables[table]);
      }));
  return PlanParts(plan);
}

template <typename T>
void RunGroupLookupGrad(const CpuExec& exec, GroupGradPlan<T>* plan,
                        Span<const TableGrad<T>> grads) {
  for (int64_t t = 0; t < grads.size; ++t) {
    if (grads[t].unique_ids == nullptr) continue;
    const UniquePlan<int64_t>& unique = plan->tables[static_cast<size_t>(t)].unique;
    exec.ParallelFor(unique.num_unique, 1, [&](int64_t begin, int64_t end) {
      std::copy_n(unique.unique_ids.span().begin() + begin, end - begin,
                  grads[t].unique_ids + begin);
    });
  }
  RunSmallTables(exec, *plan, grads);
  RunGroupedTables(exec, *plan, grads);
  RunParts(exec, plan, grads);
}

#define FE_INSTANTIATE(T)                                                       \
  template Status PlanGroupLookupGrad(const CpuExec&, const GroupGradInput<T>&, \
                                      GroupGradPlan<T>*);                       \
  template void RunGroupLookupGrad(const CpuExec&, GroupGradPlan<T>*, Span<const TableGrad<T>>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
