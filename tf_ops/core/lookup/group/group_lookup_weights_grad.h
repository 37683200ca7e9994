// The gradient of a grouped lookup with respect to the weights of its ids, one value an id: that of
// stage 5 for the pairs that are left, 0 for those that were dropped.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_WEIGHTS_GRAD_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_WEIGHTS_GRAD_H_

#include "tf_ops/core/lookup/group/group_column.h"

namespace fused_embedding {

// Writes weights_grad [nnz] of a column that CheckColumns has passed. Fails only without memory.
template <typename T>
Status GroupLookupWeightsGrad(const CpuExec& exec, const GroupColumn<T>& column,
                              const CombinedGrad<T>& combined_grad,
                              Span<ComputeType<T>> weights_grad);

// The same on a GPU, for all columns at once: weights_grads [num_columns] is where each column's
// go, null where they are not wanted. Checks sizes alone, and does not wait: a pair that
// CheckColumns refuses gets 0.
template <typename T>
Status GroupLookupWeightsGrad(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                              Span<const CombinedGrad<T>> combined_grads,
                              Span<ComputeType<T>* const> weights_grads);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_LOOKUP_WEIGHTS_GRAD_H_
