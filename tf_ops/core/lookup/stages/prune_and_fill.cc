#include "tf_ops/core/lookup/stages/prune_and_fill.h"

#include <algorithm>

#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {

template <typename Weight>
Status CheckSizes(const PruneAndFillInput<Weight>& in) {
  const int64_t nnz = in.ids.size;
  if (in.indices.size != 2 * nnz) {
    return InvalidArgument("sp_indices must hold a row and a column for each of the ", nnz,
                           " ids, but has ", in.indices.size, " values");
  }
  const bool needs_weights = in.prune && in.prune_weights;
  if (in.weights.size != nnz && (needs_weights || !in.weights.empty())) {
    return InvalidArgument("sp_weights_values must hold one weight for each of the ", nnz,
                           " ids, but has ", in.weights.size);
  }
  return Status();
}

template <typename Weight>
Status PlanPruneAndFill(const PruneAndFillInput<Weight>& in, Span<bool> is_row_empty,
                        PruneAndFillPlan* plan) {
  FE_RETURN_IF_ERROR(CheckSizes(in));
  std::fill(is_row_empty.begin(), is_row_empty.end(), true);
  int64_t num_kept = 0;
  for (int64_t i = 0; i < in.ids.size; ++i) {
    const int64_t row = in.indices[2 * i];
    // One comparison for both bounds: a negative row is a huge unsigned one.
    if (static_cast<uint64_t>(row) >= static_cast<uint64_t>(in.num_rows)) {
      return NoSuchRowId(kPruneAndFillRows, i, row, in.num_rows);
    }
    if (!in.IsKept(i)) continue;
    is_row_empty[row] = false;
    ++num_kept;
  }
  plan->num_kept = num_kept;
  plan->num_filled = in.fill ? std::count(is_row_empty.begin(), is_row_empty.end(), true) : 0;
  return Status();
}

template <typename Weight>
void RunPruneAndFill(const PruneAndFillInput<Weight>& in, const PruneAndFillPlan& plan,
                     Span<const bool> is_row_empty, const PruneAndFillOutput<Weight>& out) {
  int64_t next = 0;
  for (int64_t i = 0; i < in.ids.size; ++i) {
    if (!in.IsKept(i)) continue;
    out.ids[next] = in.ids[i];
    out.indices[2 * next] = in.indices[2 * i];
    out.indices[2 * next + 1] = in.indices[2 * i + 1];
    if (!out.weights.empty()) out.weights[next] = in.weights[i];
    ++next;
  }
  if (plan.num_filled == 0) return;
  for (int64_t row = 0; row < in.num_rows; ++row) {
    if (!is_row_empty[row]) continue;
    out.ids[next] = in.filled_id();
    out.indices[2 * next] = row;
    out.indices[2 * next + 1] = 0;
    if (!out.weights.empty()) {
      Store(static_cast<ComputeType<Weight>>(in.default_weight), &out.weights[next]);
    }
    ++next;
  }
}

template <typename Weight>
Status PruneAndFillGrad(const PruneAndFillInput<Weight>& in, Span<const Weight> kept_grad,
                        Span<Weight> weights_grad) {
  int64_t next = 0;
  for (int64_t i = 0; i < in.ids.size; ++i) {
    if (!in.IsKept(i)) {
      weights_grad[i] = Weight{};
      continue;
    }
    if (next >= kept_grad.size) {
      return InvalidArgument("the gradient has ", kept_grad.size,
                             " entries, fewer than the ids that pruning keeps");
    }
    weights_grad[i] = kept_grad[next++];
  }
  return Status();
}

#define FE_INSTANTIATE(Weight)                                                             \
  template Status CheckSizes(const PruneAndFillInput<Weight>&);                            \
  template Status PlanPruneAndFill(const PruneAndFillInput<Weight>&, Span<bool>,           \
                                   PruneAndFillPlan*);                                     \
  template void RunPruneAndFill(const PruneAndFillInput<Weight>&, const PruneAndFillPlan&, \
                                Span<const bool>, const PruneAndFillOutput<Weight>&);      \
  template Status PruneAndFillGrad(const PruneAndFillInput<Weight>&, Span<const Weight>,   \
                                   Span<Weight>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
