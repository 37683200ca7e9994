// The gradient of a grouped lookup: for each table its distinct ids and one row per id. The ids are
// in the order of their first occurrence, column after column and row after row.
//
//   columns of one table: ids [5, 2] and [2], gradients [[1], [2]] and [[4]], sum
//   unique_ids [5, 2]   rows_grad [[1], [6]]
//
// If a column leaves empty rows zero and has one, it adds id 0 with a zero row, like the gather in
// tf.nn.safe_embedding_lookup_sparse. Rows follow the formulas of stage 6. The sum of an id with
// many pairs is computed in parts of a fixed size, so the result is the same for any number of
// threads.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_GRAD_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_GRAD_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/core/lookup/stages/unique.h"

namespace fused_embedding {

template <typename T>
struct GroupGradInput {
  Span<const GroupColumn<T>> columns;
  Span<const CombinedGrad<T>> combined_grads;  // [num_columns]
  Span<const int64_t> table_of_column;         // [num_columns], each in [0, num_tables)
  int64_t num_tables = 0;
  // Ids are positions in the distinct rows of a table, and some pair reads each row. So the ids are
  // also the unique_idx, and the unique ids are the table's rows in their order.
  bool ids_are_positions = false;
};

// The plan of one table.
template <typename T>
struct TableGradPlan {
  // Pairs from the previous entry's `end` (or 0) up to `end` have this max_norm.
  struct NormLimit {
    int64_t end;
    double max_norm;
  };

  UniquePlan<int64_t> unique;
  Buffer<int32_t> unique_idx;  // [num_pairs]
  Buffer<ScaledRow<T>> pairs;  // [num_pairs] in the order of columns and ids
  int64_t num_pairs = 0;
  PairGroups by_unique;           // empty unless is_grouped
  bool is_grouped = false;        // false: small enough for one thread, which needs no groups
  std::vector<NormLimit> limits;  // of the columns; empty if none has a max_norm
  const T* table = nullptr;
  int64_t dim = 0;
};

template <typename T>
struct GroupGradPlan {
  // A part of the sum of a unique id that many pairs look up.
  struct Part {
    int64_t table, unique;
    int64_t begin, end;  // positions in by_unique
    int64_t sums;        // offset of its `dim` sums
  };

  std::vector<TableGradPlan<T>> tables;
  std::vector<Part> parts;      // the parts of an id are adjacent
  Buffer<ComputeType<T>> sums;  // of the parts
};

template <typename T>
struct TableGrad {
  int64_t* unique_ids = nullptr;  // [num_unique], or null if not needed
  T* rows_grad = nullptr;         // [num_unique, dim]
};

// Of a table of distinct rows that `num_ids` ids read: each row is read.
inline Status CheckDistinctRows(int64_t num_rows, int64_t num_ids) {
  if (num_rows <= num_ids) return Status();
  return InvalidArgument("a table of distinct rows has ", num_rows, " of them, but only ", num_ids,
                         " ids read it; pass what the lookup returned");
}

// Validates the input and finds the unique ids; table t has plan->tables[t].unique.num_unique.
template <typename T>
Status PlanGroupLookupGrad(const CpuExec& exec, const GroupGradInput<T>& in,
                           GroupGradPlan<T>* plan);

// Writes `grads` [num_tables].
template <typename T>
void RunGroupLookupGrad(const CpuExec& exec, GroupGradPlan<T>* plan,
                        Span<const TableGrad<T>> grads);

// The gradient on a GPU. Results are the same up to the order of additions, which depends only on
// the numbers of pairs. Plan waits for the stream once, for errors and the numbers of unique ids.
template <typename T>
struct GpuTableGradPlan {
  int64_t num_unique = 0;
  int64_t first_unique = 0;   // number of its first unique id; all tables are numbered in sequence
  int64_t num_positions = 0;  // positions of pairs, used or not
  const T* table = nullptr;
  int64_t dim = 0;
  uint64_t address_bits = 0;  // of the addresses that are read: gradients and embeddings
};

template <typename T>
struct GpuGroupGradPlan {
  std::vector<GpuTableGradPlan<T>> tables;
  // Positions for the pairs of all columns, table by table. A position is unused if its id was
  // dropped, or its row needs no filling.
  int64_t num_positions = 0;
  DeviceBuffer<int64_t> ids;                 // [num_positions]
  DeviceBuffer<bool> is_used;                // [num_positions]
  DeviceBuffer<ScaledRow<T>> pairs;          // [num_positions]
  DeviceBuffer<ComputeType<T>> projections;  // [num_positions]; empty if no column clips
  GpuUniquePlan unique;                      // of the positions; its num_unique alone where:
  bool ids_are_positions = false;            // as in GroupGradInput
};

template <typename T>
Status PlanGroupLookupGrad(const GpuExec& exec, const GroupGradInput<T>& in,
                           GpuGroupGradPlan<T>* plan);

template <typename T>
Status RunGroupLookupGrad(const GpuExec& exec, const GpuGroupGradPlan<T>& plan,
                          Span<const TableGrad<T>> grads);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_GRAD_H_
