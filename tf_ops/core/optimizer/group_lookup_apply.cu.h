// The gradient of a grouped lookup and the optimizer step at once: the sum of an id goes into the
// rule as it is in registers, and no gradient is written to memory and read again.
//
// Source: the backward pass of FBGEMM's split table batched embeddings does the same.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_GROUP_LOOKUP_APPLY_CU_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_GROUP_LOOKUP_APPLY_CU_H_

#include "tf_ops/core/lookup/group/group_lookup_grad.h"
#include "tf_ops/core/optimizer/array_rows.cu.h"

namespace fused_embedding {

// In place of RunGroupLookupGrad and a step by its results, with the same results up to roundings:
// `tables` [num_tables] are those of the plan. Does not wait. Rows that lanes cannot hold at once
// still go by way of memory where the rule has a number a row: those above 512 bytes, or of more
// than 32 values where 16 bytes of them cannot be moved at once.
//
// Unimplemented for rules but sgd, adagrad and row_wise_adagrad: each is kernels for all types.
template <typename T>
Status RunGroupLookupApply(const GpuExec& exec, const GpuGroupGradPlan<T>& plan,
                           const RuleInfo& rule, Span<const double> hyperparameters,
                           Span<const ArrayTable<T>> tables);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_GROUP_LOOKUP_APPLY_CU_H_
