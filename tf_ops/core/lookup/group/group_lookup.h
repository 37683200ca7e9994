// Several columns, each from ids to combined rows, in one pass: a table is read in place, and no
// embedding is written before it is combined.
//
//   ids [1, 1, -1]   row_ids [0, 0, 2]   num_rows 3   table [[1, 2], [3, 4]]   sum
//   combined [[6, 8], [0, 0], [0, 0]]
//
// Invalid ids are dropped and empty rows filled as stage 1 says, embeddings clipped, weighted and
// combined as stage 5 says. Source: tf.nn.safe_embedding_lookup_sparse.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/lookup/group/group_column.h"

namespace fused_embedding {

// Row i of a column's result: `dim` values from data + i * stride. A stride larger than `dim`
// leaves room for other columns.
template <typename T>
struct CombinedOut {
  T* data = nullptr;
  int64_t stride = 0;
};

template <typename T>
struct GroupPlan {
  struct Column {
    PairOrder order;
    PairGroups by_row;                  // unless sorted
    Buffer<ComputeType<T>> clip_scale;  // [nnz] where there is a max_norm: factor of each pair
  };
  std::vector<Column> columns;
  ColumnWork work;  // of a column: its rows and its pairs
};

// Validates all columns and prepares their pairs. No order of pairs is needed, but rows that do not
// decrease are the fast case, and one id in each row the fastest.
template <typename T>
Status PlanGroupLookup(const CpuExec& exec, Span<const GroupColumn<T>> columns, GroupPlan<T>* plan);

// The same for columns that were checked, and found to be in these orders. Fails only without
// memory.
template <typename T>
Status PlanGroupLookup(const std::vector<PairOrder>& orders, Span<const GroupColumn<T>> columns,
                       GroupPlan<T>* plan);

// Writes row 0 .. num_rows of each of `combined` [num_columns]. Each row is written by one thread,
// which adds in input order.
template <typename T>
void RunGroupLookup(const CpuExec& exec, Span<const GroupColumn<T>> columns, GroupPlan<T>* plan,
                    Span<const CombinedOut<T>> combined);

// The same for one column of a plan.
template <typename T>
void RunColumnLookup(const CpuExec& exec, const GroupColumn<T>& column,
                     typename GroupPlan<T>::Column* plan, const CombinedOut<T>& combined);

// The same on a GPU. Plan waits once, see CheckColumns.
template <typename T>
struct GpuGroupPlan {
  std::vector<PairOrder> orders;  // of the columns
  GpuPairGroups by_row;           // pairs of all columns, or empty: each column is one-hot
};

template <typename T>
Status PlanGroupLookup(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                       GpuGroupPlan<T>* plan);

template <typename T>
Status RunGroupLookup(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                      const GpuGroupPlan<T>& plan, Span<const CombinedOut<T>> combined);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_H_
