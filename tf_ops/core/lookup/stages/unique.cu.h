// First occurrences by a hash table in device memory: stage 2 and the gradient of grouped lookups.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_STAGES_UNIQUE_CU_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_STAGES_UNIQUE_CU_H_

#include <cstdint>

#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/stages/unique.h"

namespace fused_embedding {

// Ids of several tables, one after the other: equal ids of two tables are different ones.
template <typename Id>
struct IdsOfTables {
  Span<const Id> ids;              // [n] device memory
  const bool* is_used = nullptr;   // [n] device memory: others have no number; null: all are used
  Span<const int64_t> table_ends;  // [num_tables] host memory: where the ids of each table end
};

// Of a position that is not used.
constexpr uint32_t kNoPosition = ~0u;

// Writes plan->first and plan->numbers; does not wait, and leaves plan->num_unique alone.
//
//   ids [7, 3, 7, 9]  ->  first [0, 1, 0, 3]  numbers [0, 1, 2, 2, 3]
template <typename Id>
Status NumberFirst(const GpuExec& exec, const IdsOfTables<Id>& in, GpuUniquePlan* plan);

// Reads, after NumberFirst, how many numbers there are before each of `positions`, which are in
// host memory and at most n. Does not wait.
Status NumbersBefore(const GpuExec& exec, const GpuUniquePlan& plan, Span<const int64_t> positions,
                     DeviceBuffer<int32_t>* numbers);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_STAGES_UNIQUE_CU_H_
