// Stage 7 for tables that are arrays: one optimizer step on the rows that gradients name, of all
// tables of a step at once, values and slots updated in place.
//
//   indices [7, 3, 7], grads [a, b, c]  ->  row 7 is updated once, by a + c; row 3 by b
//
// A row has one owner, and the gradients of an index are added in input order: the same bits for
// any number of threads.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_SPARSE_APPLY_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_SPARSE_APPLY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/rows/pairs.h"
#include "tf_ops/core/lookup/stages/unique.h"
#include "tf_ops/core/optimizer/rule_info.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

constexpr size_t kMaxArraySlots = 3;  // of a rule whose slots all have a number for each value

// A table, its slots, and the gradient of some of its rows; all of one type. Tables must not
// overlap.
struct SparseUpdate {
  ValueType type = ValueType::kFloat;
  int64_t num_rows = 0;
  int64_t dim = 0;
  char* values = nullptr;                        // [num_rows, dim]
  std::array<char*, kMaxArraySlots> slots = {};  // [num_rows, dim] each, in the rule's order
  IdSpan indices;                                // [n] rows, any order, any repeats
  const char* grads = nullptr;                   // [n, dim]
};

struct SparseApplyInput {
  RuleInfo rule;  // with no slot of one number a row
  std::vector<SparseUpdate> updates;
  Span<const double> hyperparameters;
};

// The rows of a table that have a gradient, each once.
struct DistinctRows {
  Span<const int64_t> rows;
  Buffer<int64_t> owned_rows;  // what `rows` may refer to
  bool has_repeats = false;    // then, and else the gradient is used as it is:
  PairGroups occurrences;      // of each row, in the gradient
  Buffer<char> sums;           // [rows.size, dim], written by Run
};

struct SparseApplyPlan {
  std::vector<DistinctRows> tables;
  std::vector<int64_t> splits;  // [num_tables + 1] how many rows the tables before have together
};

// Whether the rule works value by value, so that arrays of the table's shape hold its slots.
Status CheckRuleForArrays(const RuleInfo& rule);

// Checks hyperparameters and indices and finds the distinct rows; changes nothing.
Status PlanSparseApply(const CpuExec& exec, const SparseApplyInput& in, SparseApplyPlan* plan);

void RunSparseApply(const CpuExec& exec, const SparseApplyInput& in, SparseApplyPlan* plan);

// The error of an index that the table has no row for.
Status NoSuchIndex(int64_t index, int64_t position, int64_t table, int64_t num_rows);

// The same on a GPU, up to the order in which the gradients of an index with many of them are
// added, which the numbers of repeats alone decide. Arrays are device memory; hyperparameters are
// not. Plan waits once, for errors and for which tables have repeats: those alone are sorted.
struct GpuSparseApplyPlan {
  DeviceBuffer<int64_t> rows;  // of all tables, one after the other
  GpuUniquePlan unique;        // of `rows`
  // [num_tables + 1] how many the tables before have together.
  std::vector<int64_t> first_rows, first_uniques;
};

Status PlanSparseApply(const GpuExec& exec, const SparseApplyInput& in, GpuSparseApplyPlan* plan);

Status RunSparseApply(const GpuExec& exec, const SparseApplyInput& in,
                      const GpuSparseApplyPlan& plan);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_SPARSE_APPLY_H_
