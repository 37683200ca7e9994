// Stage 7 on a GPU: one optimizer step on the rows of tables by key in its memory.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_APPLY_CU_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_APPLY_CU_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/optimizer/rule_info.h"
#include "tf_ops/core/table/gpu/gpu_table.h"

namespace fused_embedding {

struct GpuApplyInput {
  const GpuTable* table = nullptr;
  Span<const int64_t> handles;  // [n] of a lookup of distinct keys; negative: no row
  const char* grads = nullptr;  // [n, dim] of the table's value type, in device memory
  std::string slot_prefix;      // name of the optimizer: its slots are "PREFIX/accumulator"
};

// Updates the rows of the handles of each table, in one launch for each value type; a handle that
// is negative is left out. Does not wait. FailedPrecondition for a table without the rule's slots.
Status Apply(const GpuExec& exec, const RuleInfo& rule, Span<const double> hyperparameters,
             Span<const GpuApplyInput> inputs);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_APPLY_CU_H_
