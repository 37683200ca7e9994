// A grouped lookup in tables by key in a GPU's memory: as in table_group_lookup.h, in one launch a
// stage for all tables and columns.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_TABLE_GROUP_LOOKUP_CU_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_TABLE_GROUP_LOOKUP_CU_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/group/group_keys.cu.h"
#include "tf_ops/core/lookup/group/group_lookup.h"
#include "tf_ops/core/table/gpu/training.cu.h"

namespace fused_embedding {

template <typename T>
struct GpuTableGroupInput {
  GroupKeysInput<T> keys;          // its arrays are in device memory
  Span<GpuTable* const> tables;    // [num_tables] distinct
  bool insert = false;             // count keys and insert what is admitted, or change nothing
  Span<const int64_t> steps = {};  // [num_tables] version of each one's rows, where `insert`
};

struct GpuTableGroupPlan {
  GpuGroupKeys keys;
  GpuTrainingPlan training;  // empty unless the input's `insert`

  int64_t num_keys() const { return keys.ends.empty() ? 0 : keys.ends.back(); }
  int64_t num_keys(size_t table) const {
    return keys.ends[table] - (table == 0 ? 0 : keys.ends[table - 1]);
  }
};

// Finds the keys of the columns, and what inserting them will do. Waits once for the keys, and as
// PlanGpuTraining does. The tables keep their rows if it fails.
template <typename T>
Status PlanTableGroupLookup(const GpuExec& exec, const GpuTableGroupInput<T>& in,
                            GpuTableGroupPlan* plan);

template <typename T>
struct GpuTableGroupOutput {
  Span<int64_t> handles;                // [plan.num_keys()] for Apply, of one table after another
  Span<T* const> rows;                  // [num_tables] on the host: [plan.num_keys(t), dim] each
  Span<const CombinedOut<T>> combined;  // [num_columns] on the host
  GpuEvicted evicted = {};
};

// Looks the keys up and combines their rows. The gradient is that of columns of positions:
// GroupGradInput::ids_are_positions. Does not wait.
template <typename T>
Status RunTableGroupLookup(const GpuExec& exec, const GpuTableGroupInput<T>& in,
                           const GpuTableGroupPlan& plan, const GpuTableGroupOutput<T>& out);

// Copies the keys of the plan, and their handles, to arrays of each table [plan.num_keys(t)], whose
// pointers are on the host [num_tables]. Does not wait.
Status CopyKeysOfTables(const GpuExec& exec, const GpuTableGroupPlan& plan,
                        Span<const int64_t> handles, Span<int64_t* const> keys_of_table,
                        Span<int64_t* const> handles_of_table);

// The columns as columns of positions in `rows` [num_tables].
template <typename T>
std::vector<GroupColumn<T>> PositionColumns(const GroupKeysInput<T>& in,
                                            const GpuTableGroupPlan& plan, Span<T* const> rows);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_TABLE_GROUP_LOOKUP_CU_H_
