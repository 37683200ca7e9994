// The gradient of a grouped lookup: for each table its distinct ids, in the order in which columns
// and rows have them first, and one row for each.
//
//   columns of one table: ids [5, 2] and [2], gradients [[1], [2]] and [[4]], sum
//   unique_ids [5, 2]   rows_grad [[1], [6]]
//
// A column that leaves empty rows zero adds id 0 with a zero row where it has one, as the gather of
// tf.nn.safe_embedding_lookup_sparse does. Rows follow the formulas of stage 6. The sums of an id
// with many pairs are taken in parts of a fixed size, so that they are the same for any number of
// threads.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_GRAD_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_GRAD_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/core/lookup/rows/row_grad.h"
#include "tf_ops/core/lookup/stages/unique.h"

namespace fused_embedding {

template <typename T>
struct GroupGradInput {
  Span<const GroupColumn<T>> columns;
  Span<const CombinedGrad<T>> combined_grads;  // [num_columns]
  Span<const int64_t> table_of_column;         // [num_columns], each in [0, num_tables)
  int64_t num_tables = 0;
  // Ids are positions among the distinct rows of a table, each of which some pair reads: they are
  // their own unique_idx, and the table's rows the unique ids, in that order.
  bool ids_are_positions = false;
};

// What one table needs.
template <typename T>
struct TableGradPlan {
  // Pairs before `end` have this max_norm, those before an earlier entry's `end` excepted.
  struct NormLimit {
    int64_t end;
    double max_norm;
  };

  UniquePlan<int64_t> unique;
  Buffer<int32_t> unique_idx;  // [num_pairs]
  Buffer<ScaledRow<T>> pairs;  // [num_pairs] in the order of columns and ids
  int64_t num_pairs = 0;
  PairGroups by_unique;           // where is_grouped
  bool is_grouped = false;        // false: small enough for one thread, which needs no groups
  std::vector<NormLimit> limits;  // of columns, or empty: none has one
  const T* table = nullptr;
  int64_t dim = 0;
};

template <typename T>
struct GroupGradPlan {
  // A part of the sum of a table's unique id that many pairs look up.
  struct Part {
    int64_t table, unique;
    int64_t begin, end;  // of by_unique
    int64_t sums;        // where its `dim` sums are
  };

  std::vector<TableGradPlan<T>> tables;
  std::vector<Part> parts;      // of one id after the other
  Buffer<ComputeType<T>> sums;  // of the parts
};

template <typename T>
struct TableGrad {
  int64_t* unique_ids = nullptr;  // [num_unique], or null: not wanted
  T* rows_grad = nullptr;         // [num_unique, dim]
};

// Validates and finds the unique ids: those of table t are plan->tables[t].unique.num_unique.
template <typename T>
Status PlanGroupLookupGrad(const CpuExec& exec, const GroupGradInput<T>& in,
                           GroupGradPlan<T>* plan);

// Writes `grads` [num_tables].
template <typename T>
void RunGroupLookupGrad(const CpuExec& exec, GroupGradPlan<T>* plan,
                        Span<const TableGrad<T>> grads);

// The same on a GPU, up to the order of additions, which the numbers of pairs alone decide, and
// without ids_are_positions. Plan waits once, for errors and the numbers of unique ids.
template <typename T>
struct GpuTableGradPlan {
  int64_t num_unique = 0;
  int64_t first_unique = 0;   // unique ids of all tables are numbered
  int64_t num_positions = 0;  // of pairs, used or not
  const T* table = nullptr;
  int64_t dim = 0;
  uint64_t address_bits = 0;  // of what is read: gradients and embeddings
};

template <typename T>
struct GpuGroupGradPlan {
  std::vector<GpuTableGradPlan<T>> tables;
  // Pairs of all columns, table by table. Where an id was dropped, or a row needs no filling, there
  // is none.
  int64_t num_positions = 0;
  DeviceBuffer<int64_t> ids;                 // [num_positions]
  DeviceBuffer<bool> is_used;                // [num_positions]
  DeviceBuffer<ScaledRow<T>> pairs;          // [num_positions]
  DeviceBuffer<ComputeType<T>> projections;  // [num_positions], or empty: no column clips
  GpuUniquePlan unique;                      // of the positions
};

template <typename T>
Status PlanGroupLookupGrad(const GpuExec& exec, const GroupGradInput<T>& in,
                           GpuGroupGradPlan<T>* plan);

template <typename T>
Status RunGroupLookupGrad(const GpuExec& exec, const GpuGroupGradPlan<T>& plan,
                          Span<const TableGrad<T>> grads);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_GRAD_H_
