// Stage 7: one optimizer step on the rows of tables, values and slots updated in place.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_APPLY_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_APPLY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/optimizer/rule_info.h"
#include "tf_ops/core/table/embedding_table.h"

namespace fused_embedding {

struct ApplyInput {
  EmbeddingTable* table = nullptr;
  Span<const int64_t> keys;     // [n] distinct
  Span<const int64_t> handles;  // [n] of the lookup, or empty
  const char* grads = nullptr;  // [n, dim] of the table's value type
  std::string slot_prefix;      // name of the optimizer: its slots are "PREFIX/accumulator"
  Span<const double> hyperparameters;
};

// Updates the rows of the `keys` of each table; keys without a row (not admitted, refused, expired
// since) are left. Each table may be there but once. All is checked before a table is changed.
Status Apply(const CpuExec& exec, const RuleInfo& rule, Span<const ApplyInput> inputs);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_APPLY_H_
