#include "tf_ops/core/lookup/stages/pre_lookup.h"

#include <algorithm>

namespace fused_embedding {

Status PlanPreLookup(const PreLookupInput& in, Span<int32_t> flags, Span<int64_t> shard_sizes,
                     PreLookupPlan* plan) {
  const PruneAndFillInput<float>& pairs = in.pairs;
  Buffer<bool> is_row_empty;
  FE_RETURN_IF_ERROR(is_row_empty.Allocate(pairs.num_rows));
  PruneAndFillPlan filled;
  FE_RETURN_IF_ERROR(PlanPruneAndFill(pairs, is_row_empty.span(), &filled));

  FE_RETURN_IF_ERROR(plan->ids.Allocate(filled.nnz_out()));
  FE_RETURN_IF_ERROR(plan->indices.Allocate(2 * filled.nnz_out()));
  FE_RETURN_IF_ERROR(plan->permutation.Allocate(2 * filled.nnz_out()));
  RunPruneAndFill(pairs, filled, is_row_empty.span(),
                  {plan->ids.span(), plan->indices.span(), Span<float>{}});

  std::copy(is_row_empty.span().begin(), is_row_empty.span().end(), flags.begin());
  std::transform(pairs.ids.begin(), pairs.ids.end(), flags.begin() + pairs.num_rows,
                 [](int64_t id) { return static_cast<int32_t>(id >= 0); });
  return PlanPartition(plan->Partition(in), plan->permutation.span(), shard_sizes);
}

void RunPreLookup(const PreLookupInput& in, const PreLookupPlan& plan,
                  Span<const Span<int64_t>> shard_ids, Span<const Span<int64_t>> shard_indices) {
  const Span<const int32_t> permutation = plan.permutation.span();
  const Span<const int64_t> indices = plan.indices.span();
  RunPartition(plan.Partition(in), permutation, shard_ids);
  for (int64_t i = 0; i < plan.ids.size(); ++i) {
    const Span<int64_t> shard = shard_indices[permutation[2 * i]];
    const int64_t position = permutation[2 * i + 1];
    shard[2 * position] = indices[2 * i];
    shard[2 * position + 1] = indices[2 * i + 1];
  }
}

}  // namespace fused_embedding
