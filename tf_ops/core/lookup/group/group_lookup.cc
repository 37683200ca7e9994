#include "tf_ops/core/lookup/group/group_lookup.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tf_ops/core/lookup/rows/row_math.h"
#include "tf_ops/core/lookup/stages/gather.h"

namespace fused_embedding {
namespace {

// Rows in flight, as in gather.cc.
constexpr int64_t kPrefetchDistance = 24;

// Combines rows of one column whose ids are of type Id.
template <typename T, typename Id>
class ColumnCombiner {
 public:
  using C = ComputeType<T>;

  ColumnCombiner(const GroupColumn<T>& column, Span<const Id> ids,
                 typename GroupPlan<T>::Column* plan, const CombinedOut<T>& out)
      : column_(column),
        ids_(ids),
        rule_(column.rule()),
        keeps_all_(plan->order.keeps_all),
        by_row_(plan->order.is_sorted ? nullptr : &plan->by_row),
        clip_scale_(plan->clip_scale.span()),
        out_(out) {}

  template <int64_t kVectorBytes>
  FE_INLINE void Combine(int64_t begin, int64_t end) const {
    int64_t first = by_row_ ? by_row_->begin(begin) : FirstPairOfRow(column_.row_ids, begin);
    for (int64_t i = first; i < first + kPrefetchDistance; ++i) Prefetch(i);
    if (!by_row_ && clip_scale_.empty()) {
      if (column_.weights.empty()) return AddUpRows<kVectorBytes>(begin, end, first);
      // Rows of Half are bound by their conversion, and would take long to compile.
      if constexpr (!std::is_same_v<T, Half>) {
        if (AddUpUsualRows<true, kVectorBytes>(begin, end, first)) return;
      }
    }
    for (int64_t row = begin; row < end; ++row) {
      const int64_t stop = PairsEnd(row, first);
      CombineRow(row, first, stop);
      first = stop;
    }
  }

 private:
  // Combines unweighted rows.
  template <int64_t kVectorBytes>
  FE_INLINE void AddUpRows(int64_t begin, int64_t end, int64_t first) const {
    if (AddUpUsualRows<false, kVectorBytes>(begin, end, first)) return;
    for (int64_t row = begin; row < end; ++row) first = AddUpRow(row, first);
  }

  // Combines rows of a usual dim: pairs are looked at once. These dims are known when this is
  // compiled: the fewer instructions lie between the rows, the more of them the processor fetches
  // at a time. Returns false for another dim.
  template <bool kHasWeights, int64_t kVectorBytes>
  FE_INLINE bool AddUpUsualRows(int64_t begin, int64_t end, int64_t first) const {
    switch (column_.dim) {
      case 8:
        AddUpRowsOf<8, kHasWeights, kVectorBytes>(begin, end, first);
        return true;
      case 16:
        AddUpRowsOf<16, kHasWeights, kVectorBytes>(begin, end, first);
        return true;
      case 32:
        AddUpRowsOf<32, kHasWeights, kVectorBytes>(begin, end, first);
        return true;
      case 64:
        AddUpRowsOf<64, kHasWeights, kVectorBytes>(begin, end, first);
        return true;
      case 128:
        AddUpRowsOf<128, kHasWeights, kVectorBytes>(begin, end, first);
        return true;
      default:
        return false;
    }
  }

  template <int64_t kDim, bool kHasWeights, int64_t kVectorBytes>
  FE_INLINE void AddUpRowsOf(int64_t begin, int64_t end, int64_t first) const {
    const T* table = column_.table;
    const uint64_t table_rows = static_cast<uint64_t>(column_.table_rows);
    const RowIds row_ids = column_.row_ids;
    for (int64_t row = begin; row < end; ++row) {
      RowSum<kDim, kVectorBytes, C> sum;
      RowTerms<C> terms;
      for (; first < ids_.size && row_ids[first] == row; ++first) {
        if (const int64_t ahead = first + kPrefetchDistance; ahead < ids_.size) {
          if (const int64_t id = ids_[ahead]; static_cast<uint64_t>(id) < table_rows) {
            PrefetchRow(table + id * kDim, kDim * static_cast<int64_t>(sizeof(T)));
          }
        }
        AddPair<kDim, kHasWeights>(first, &terms, &sum);
      }
      if (!kHasWeights) terms.sum = static_cast<C>(terms.count);
      T* combined = out_.data + row * out_.stride;
      if (terms.count == 0) {
        StoreEmptyRow(combined);
      } else if (kHasWeights && HasZeroDenominator(column_.combiner, terms.sum)) {
        std::memset(combined, 0, kDim * sizeof(T));
      } else {
        sum.StoreScaled(RowScale(column_.combiner, terms.sum), combined);
      }
    }
  }

  template <int64_t kDim, bool kHasWeights, typename Sum>
  FE_INLINE void AddPair(int64_t pair, RowTerms<C>* terms, Sum* sum) const {
    const int64_t id = ids_[pair];
    if (kHasWeights ? !IsKept(pair) : id < 0) return;
    ++terms->count;
    if constexpr (kHasWeights) {
      const C weight = column_.weights[pair];
      terms->sum += DenominatorTerm(column_.combiner, weight);
      sum->AddScaled(weight, column_.table + id * kDim);
    } else {
      sum->Add(column_.table + id * kDim);
    }
  }

  // A row of any dim. Returns the end of its pairs.
  FE_INLINE int64_t AddUpRow(int64_t row, int64_t first) const {
    int64_t stop = first, count = 0;
    T* combined = out_.data + row * out_.stride;
    ForEachBlock(column_.dim,
                 [&](auto width_constant, int64_t offset, int64_t width) FE_INLINE_LAMBDA {
                   constexpr int64_t kWidth = decltype(width_constant)::value;
                   C sums[kBlockWidth] = {};
                   count = 0;
                   for (stop = first; stop < ids_.size && column_.row_ids[stop] == row; ++stop) {
                     if (offset == 0) Prefetch(stop + kPrefetchDistance);
                     const int64_t id = ids_[stop];
                     if (id < 0) continue;
                     ++count;
                     AddScaled<kWidth>(C{1}, column_.row_of_id(id) + offset, width, sums);
                   }
                   const C scale = RowScale(column_.combiner, static_cast<C>(count));
                   if (count > 0) StoreScaled<kWidth>(scale, sums, width, combined + offset);
                 });
    if (count == 0) StoreEmptyRow(combined);
    return stop;
  }

  FE_INLINE int64_t PairsEnd(int64_t row, int64_t first) const {
    if (by_row_) return by_row_->end(row);
    int64_t stop = first;
    while (stop < ids_.size && column_.row_ids[stop] == row) ++stop;
    return stop;
  }

  FE_INLINE int64_t Pair(int64_t i) const { return by_row_ ? by_row_->pair(i) : i; }

  FE_INLINE bool IsKept(int64_t pair) const {
    return keeps_all_ || rule_.Keeps(ids_[pair], column_.weight(pair));
  }

  FE_INLINE void Prefetch(int64_t i) const {
    if (i >= ids_.size) return;
    const int64_t id = ids_[Pair(i)];
    if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(column_.table_rows)) return;
    PrefetchRow(column_.row_of_id(id), column_.dim * static_cast<int64_t>(sizeof(T)));
  }

  FE_INLINE void CombineRow(int64_t row, int64_t first, int64_t stop) const {
    const RowTerms<C> terms = AddTerms(first, stop);
    T* combined = out_.data + row * out_.stride;
    if (terms.count == 0) return StoreEmptyRow(combined);
    const bool is_zero = HasZeroDenominator(column_.combiner, terms.sum);
    const C scale = RowScale(column_.combiner, terms.sum);
    ForEachBlock(column_.dim,
                 [&](auto width_constant, int64_t offset, int64_t width) FE_INLINE_LAMBDA {
                   constexpr int64_t kWidth = decltype(width_constant)::value;
                   C sums[kBlockWidth] = {};
                   for (int64_t i = first; i < stop; ++i) {
                     if (offset == 0) Prefetch(i + kPrefetchDistance);
                     const int64_t k = Pair(i);
                     if (is_zero || !IsKept(k)) continue;
                     AddScaled<kWidth>(Factor(k), column_.row_of_id(ids_[k]) + offset, width, sums);
                   }
                   StoreScaled<kWidth>(scale, sums, width, combined + offset);
                 });
  }

  FE_INLINE RowTerms<C> AddTerms(int64_t first, int64_t stop) const {
    if (keeps_all_ && column_.weights.empty() && clip_scale_.empty()) {
      return {stop - first, static_cast<C>(stop - first)};
    }
    RowTerms<C> terms;
    for (int64_t i = first; i < stop; ++i) {
      const int64_t k = Pair(i);
      if (!IsKept(k)) continue;
      ++terms.count;
      terms.sum += DenominatorTerm(column_.combiner, column_.weight(k));
      if (!clip_scale_.empty()) clip_scale_[k] = ClipScaleOf(ids_[k]);
    }
    return terms;
  }

  FE_INLINE C Factor(int64_t pair) const {
    return column_.weight(pair) * (clip_scale_.empty() ? C{1} : clip_scale_[pair]);
  }

  FE_INLINE C ClipScaleOf(int64_t id) const {
    if (column_.max_norm < 0) return 1;
    return ClipScale(L2Norm(column_.row_of_id(id), column_.dim), static_cast<C>(column_.max_norm));
  }

  FE_INLINE void StoreEmptyRow(T* combined) const {
    if (!column_.fills_default()) {
      std::memset(combined, 0, static_cast<size_t>(column_.dim) * sizeof(T));
      return;
    }
    const C clip_scale = ClipScaleOf(column_.default_id);
    const T* embedding = column_.row_of_id(column_.default_id);
    for (int64_t d = 0; d < column_.dim; ++d) Store(clip_scale * Load(embedding[d]), &combined[d]);
  }

  const GroupColumn<T> column_;  // a copy: its fields stay in registers
  Span<const Id> ids_;
  PruneRule rule_;
  bool keeps_all_;
  const PairGroups* by_row_;  // null: pairs came in the order of their rows
  Span<C> clip_scale_;
  const CombinedOut<T>& out_;
};

// The rows [begin, end) are those whose last position, of their pairs and then of themselves, lies
// in [first, last). Hence ranges of positions that follow each other give rows that do.
template <typename T>
int64_t RowAtPosition(const GroupColumn<T>& column, const typename GroupPlan<T>::Column& plan,
                      int64_t position) {
  int64_t low = 0, high = column.num_rows;
  while (low < high) {
    const int64_t row = low + (high - low) / 2;
    const int64_t num_pairs =
        plan.order.is_sorted ? FirstPairOfRow(column.row_ids, row + 1) : plan.by_row.end(row);
    if (row + num_pairs < position) {
      low = row + 1;
    } else {
      high = row;
    }
  }
  return low;
}

template <typename T, typename Id>
void CombineRows(const GroupColumn<T>& column, Span<const Id> ids,
                 typename GroupPlan<T>::Column* plan, const CombinedOut<T>& out, int64_t begin,
                 int64_t end) {
  constexpr int64_t kValueBytes = static_cast<int64_t>(sizeof(T));
  // One unweighted embedding a row is what comes out, whatever the combiner.
  if (plan->order.is_full() && column.weights.empty() && column.max_norm < 0) {
    const TableView table{reinterpret_cast<const char*>(column.table), column.table_rows,
                          column.dim * kValueBytes};
    CopyRows(table, ids, begin, end, {reinterpret_cast<char*>(out.data), out.stride * kValueBytes});
    return;
  }
  const ColumnCombiner<T, Id> combiner(column, ids, plan, out);
  WithSimd([&](auto vector_bytes)
               FE_INLINE_LAMBDA { combiner.template Combine<vector_bytes()>(begin, end); });
}

template <typename T>
void CombinePositions(const GroupColumn<T>& column, typename GroupPlan<T>::Column* plan,
                      const CombinedOut<T>& out, int64_t first, int64_t last) {
  const int64_t first_row = RowAtPosition(column, *plan, first);
  const int64_t end_row = RowAtPosition(column, *plan, last);
  if (first_row == end_row) return;
  column.ids.Visit([&](auto ids) { CombineRows(column, ids, plan, out, first_row, end_row); });
}

// Rough cost of a position.
int64_t PositionNs(int64_t dim) { return 4 + dim / 8; }

}  // namespace

template <typename T>
Status PlanGroupLookup(const CpuExec& exec, Span<const GroupColumn<T>> columns,
                       GroupPlan<T>* plan) {
  std::vector<PairOrder> orders;
  FE_RETURN_IF_ERROR(CheckColumns(exec, columns, &orders));
  return PlanGroupLookup(orders, columns, plan);
}

template <typename T>
Status PlanGroupLookup(const std::vector<PairOrder>& orders, Span<const GroupColumn<T>> columns,
                       GroupPlan<T>* plan) {
  plan->columns.resize(orders.size());
  for (int64_t c = 0; c < columns.size; ++c) {
    const GroupColumn<T>& column = columns[c];
    auto& of_column = plan->columns[static_cast<size_t>(c)];
    of_column.order = orders[static_cast<size_t>(c)];
    // Rows of no values need no work, however many there are.
    const int64_t num_rows = column.dim == 0 ? 0 : column.num_rows;
    const int64_t num_pairs = column.dim == 0 ? 0 : column.num_pairs();
    if (num_rows > std::numeric_limits<int64_t>::max() - num_pairs ||
        !plan->work.Add(num_rows + num_pairs)) {
      return ResourceExhausted("cannot make ", num_rows, " rows; use a smaller batch");
    }
    if (!of_column.order.is_sorted) {
      FE_RETURN_IF_ERROR(GroupByRow(column.row_ids, column.num_rows, &of_column.by_row));
    }
    if (column.max_norm >= 0) {
      FE_RETURN_IF_ERROR(of_column.clip_scale.Allocate(column.num_pairs()));
    }
  }
  return Status();
}

template <typename T>
void RunGroupLookup(const CpuExec& exec, Span<const GroupColumn<T>> columns, GroupPlan<T>* plan,
                    Span<const CombinedOut<T>> combined) {
  int64_t max_dim = 0;
  for (const GroupColumn<T>& column : columns) max_dim = std::max(max_dim, column.dim);
  exec.ParallelFor(plan->work.total(), PositionNs(max_dim), [&](int64_t begin, int64_t end) {
    plan->work.ForEach(begin, end, [&](int64_t c, int64_t first, int64_t last) {
      CombinePositions(columns[c], &plan->columns[static_cast<size_t>(c)], combined[c], first,
                       last);
    });
  });
}

template <typename T>
void RunColumnLookup(const CpuExec& exec, const GroupColumn<T>& column,
                     typename GroupPlan<T>::Column* plan, const CombinedOut<T>& combined) {
  if (column.dim == 0) return;
  exec.ParallelFor(
      column.num_rows + column.num_pairs(), PositionNs(column.dim),
      [&](int64_t begin, int64_t end) { CombinePositions(column, plan, combined, begin, end); });
}

#define FE_INSTANTIATE(T)                                                                     \
  template Status PlanGroupLookup(const CpuExec&, Span<const GroupColumn<T>>, GroupPlan<T>*); \
  template Status PlanGroupLookup(const std::vector<PairOrder>&, Span<const GroupColumn<T>>,  \
                                  GroupPlan<T>*);                                             \
  template void RunGroupLookup(const CpuExec&, Span<const GroupColumn<T>>, GroupPlan<T>*,     \
                               Span<const CombinedOut<T>>);                                   \
  template void RunColumnLookup(const CpuExec&, const GroupColumn<T>&,                        \
                                typename GroupPlan<T>::Column*, const CombinedOut<T>&);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
