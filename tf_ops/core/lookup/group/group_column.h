// A column of a grouped lookup: the ids of a batch, the table with their rows, and how the rows of
// ids are combined to one result per row of the batch. It does stages 1 to 5 without intermediate
// tensors: the table is read in place.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_COLUMN_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_COLUMN_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/column_work.h"
#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/lookup/rows/pairs.h"
#include "tf_ops/core/lookup/rows/stored_rows.h"
#include "tf_ops/core/lookup/stages/prune_and_fill.h"

namespace fused_embedding {

template <typename T>
struct GroupColumn : PairSource<T> {
  IdSpan ids;                // [num_pairs]
  const T* table = nullptr;  // [table_rows, dim]
  StoredRows stored;         // on a CPU, of float: rows in fewer bytes, instead of `table`
  int64_t table_rows = 0;
  int64_t default_id = -1;  // id that rows without ids look up; negative: such rows are zero
  int64_t zero_id = 0;      // and this id has a gradient of zeros
  bool prune = true;        // drop id < 0, and not (weight > 0) unless the combiner is sum
  bool fill = true;         // rows without ids look up default_id
  // Every id that is not dropped has a row, negative ids included: table_rows is ignored.
  bool ids_are_keys = false;
  const char* name = nullptr;  // the user's name for errors; null: errors have the column's number

  FE_INLINE bool is_stored() const { return stored.data != nullptr; }
  FE_INLINE bool fills_default() const { return fill && default_id >= 0; }
  // The id that a filled row looks up. If default_id is negative, the result is zero.
  FE_INLINE int64_t filled_id() const { return default_id >= 0 ? default_id : zero_id; }
  FE_INLINE PruneRule rule() const {
    return {prune, prune && this->combiner != Combiner::kSum && !this->weights.empty()};
  }
  FE_INLINE bool IsKept(int64_t pair) const { return rule().Keeps(ids[pair], this->weight(pair)); }
  // Also false for a pair that CheckColumns refuses.
  FE_INLINE bool Exists(int64_t pair) const {
    const uint64_t row = static_cast<uint64_t>(this->row_ids[pair]);
    const uint64_t id = static_cast<uint64_t>(ids[pair]);
    return row < static_cast<uint64_t>(this->num_rows) && IsKept(pair) &&
           (ids_are_keys || id < static_cast<uint64_t>(table_rows));
  }
  FE_INLINE const T* row(int64_t pair) const { return row_of_id(ids[pair]); }
  FE_INLINE const T* row_of_id(int64_t id) const { return table + id * this->dim; }
  // Always false: a row that is not filled has no pairs.
  FE_INLINE bool IsZeroRow(int64_t) const { return false; }
};

// The order of a column's pairs, as CheckColumns finds it.
struct PairOrder {
  bool is_sorted = true;   // rows do not decrease
  bool is_one_hot = true;  // pair i is in row i, and each row has one pair
  bool keeps_all = true;   // pruning drops no pair

  // Whether no row is empty, as far as the flags alone show.
  bool is_full() const { return is_one_hot && keeps_all; }
};

// Checks sizes, rows and ids, and sets `orders`. InvalidArgument names the column, the first bad
// row or id, its position and the limit.
template <typename T>
Status CheckColumns(const CpuExec& exec, Span<const GroupColumn<T>> columns,
                    std::vector<PairOrder>* orders);

// CheckColumns on a GPU. It waits for the stream once, for its result, and a second time if a
// default_id that is not in the table may be needed.
template <typename T>
Status CheckColumns(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                    std::vector<PairOrder>* orders);

// The checks of CheckColumns that do not read ids and rows: whether lengths agree, and whether sums
// of lengths fit.
template <typename T>
Status CheckColumnSizes(Span<const GroupColumn<T>> columns);
// Prefixes an error with the column's name, or with "column 3" if it has none.
Status InColumn(int64_t column, const Status& status, const char* name = nullptr);
Status NoSuchFilledId(int64_t filled_id, int64_t row, int64_t table_rows);

// Writes is_row_empty [num_rows] of `rows`, of which `pairs` has all pairs: whether pruning leaves
// the row without any. The column must have been checked.
template <typename T>
void FindEmptyRows(const GroupColumn<T>& column, const Range& rows, const Range& pairs,
                   Span<bool> is_row_empty);
// Of all rows.
template <typename T>
void FindEmptyRows(const GroupColumn<T>& column, Span<bool> is_row_empty) {
  FindEmptyRows(column, {0, column.num_rows}, {0, column.num_pairs()}, is_row_empty);
}

// The position of the first pair at or after `row`, in a checked column whose rows do not decrease.
FE_INLINE int64_t FirstPairOfRow(const RowIds& row_ids, int64_t row) {
  int64_t first = 0, last = row_ids.size;
  while (first < last) {
    const int64_t middle = first + (last - first) / 2;
    if (row_ids[middle] < row) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_COLUMN_H_
