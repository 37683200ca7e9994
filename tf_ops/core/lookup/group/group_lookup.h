// Looks up several columns in one pass, each from ids to combined rows. A table is read in place,
// and no embedding is stored before it is combined.
//
//   ids [1, 1, -1]   row_ids [0, 0, 2]   num_rows 3   table [[1, 2], [3, 4]]   sum
//   combined [[6, 8], [0, 0], [0, 0]]
//
// Invalid ids are dropped and empty rows filled as in stage 1; embeddings are clipped, weighted and
// combined as in stage 5. Source: tf.nn.safe_embedding_lookup_sparse.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/lookup/group/group_column.h"

namespace fused_embedding {

// A column's result. Row i is `dim` values from data + i * stride; a stride larger than `dim`
// leaves room for other columns.
template <typename T>
struct CombinedOut {
  T* data = nullptr;
  int64_t stride = 0;
};

template <typename T>
struct GroupPlan {
  struct Column {
    bool is_sorted = true;  // as far as is known
    PairGroups by_row;      // unless the pairs are sorted
  };
  std::vector<Column> columns;
  ColumnWork work;  // the work of a column: its rows and its pairs
};

// Checks the sizes of all columns. Rows and ids are read once, by RunGroupLookup.
template <typename T>
Status PlanGroupLookup(const CpuExec& exec, Span<const GroupColumn<T>> columns, GroupPlan<T>* plan);

// PlanGroupLookup for columns that CheckColumns has checked, with the orders that it found. Fails
// only if memory runs out.
template <typename T>
Status PlanGroupLookup(const std::vector<PairOrder>& orders, Span<const GroupColumn<T>> columns,
                       GroupPlan<T>* plan);

// Writes rows [0, num_rows) of each of `combined` [num_columns]. One thread writes each row, and
// adds as RowSums does. Fails as CheckColumns does, or if memory runs out.
//
// Pairs may be in any order; rows that do not decrease are faster, and exactly one id in each row
// is fastest.
template <typename T>
Status RunGroupLookup(const CpuExec& exec, Span<const GroupColumn<T>> columns,
                      const GroupPlan<T>& plan, Span<const CombinedOut<T>> combined);

// RunGroupLookup for one column of a plan that was made with orders. Fails only if memory runs out.
template <typename T>
Status RunColumnLookup(const CpuExec& exec, const GroupColumn<T>& column,
                       const typename GroupPlan<T>::Column& plan, const CombinedOut<T>& combined);

// The grouped lookup on a GPU. Plan waits for the stream once: see CheckColumns.
template <typename T>
struct GpuGroupPlan {
  std::vector<PairOrder> orders;  // of the columns
  GpuPairGroups by_row;           // pairs of all columns; empty if each column is one-hot
};

template <typename T>
Status PlanGroupLookup(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                       GpuGroupPlan<T>* plan);

// PlanGroupLookup for columns that CheckColumns has checked, with the orders that it found. Does
// not wait.
template <typename T>
Status PlanGroupLookup(const GpuExec& exec, const std::vector<PairOrder>& orders,
                       Span<const GroupColumn<T>> columns, GpuGroupPlan<T>* plan);

template <typename T>
Status RunGroupLookup(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                      const GpuGroupPlan<T>& plan, Span<const CombinedOut<T>> combined);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_H_
