#include "tf_ops/core/lookup/group/group_lookup_weights_grad.h"

#include <algorithm>
#include <numeric>

#include "tf_ops/core/lookup/stages/post_lookup_weights_grad.h"

namespace fused_embedding {
namespace {

// The pairs that pruning leaves, each with an embedding of its own.
template <typename T>
struct KeptPairs {
  Pairs<T> pairs;
  Buffer<int64_t> positions;  // [num_kept] in the column
  Buffer<const T*> rows;
  Buffer<int32_t> unique_idx;
  Buffer<int64_t> row_ids;
  Buffer<ComputeType<T>> weights;
};

template <typename T>
Status KeepPairs(const GroupColumn<T>& column, KeptPairs<T>* kept) {
  FE_RETURN_IF_ERROR(kept->positions.Allocate(column.num_pairs()));
  int64_t num_kept = 0;
  for (int64_t i = 0; i < column.num_pairs(); ++i) {
    if (column.IsKept(i)) kept->positions[num_kept++] = i;
  }
  FE_RETURN_IF_ERROR(kept->rows.Allocate(num_kept));
  FE_RETURN_IF_ERROR(kept->unique_idx.Allocate(num_kept));
  FE_RETURN_IF_ERROR(kept->row_ids.Allocate(num_kept));
  FE_RETURN_IF_ERROR(kept->weights.Allocate(num_kept));
  std::iota(kept->unique_idx.span().begin(), kept->unique_idx.span().end(), 0);
  for (int64_t k = 0; k < num_kept; ++k) {
    const int64_t i = kept->positions[k];
    kept->rows[k] = column.row(i);
    kept->row_ids[k] = column.row_ids[i];
    kept->weights[k] = column.weight(i);
  }
  Pairs<T>& pairs = kept->pairs;
  pairs.rows = {kept->rows.data(), num_kept};
  pairs.unique_idx = kept->unique_idx.span();
  pairs.row_ids = {kept->row_ids.data(), num_kept};
  pairs.weights = kept->weights.span();
  pairs.dim = column.dim;
  pairs.num_rows = column.num_rows;
  pairs.combiner = column.combiner;
  pairs.max_norm = column.max_norm;
  return Status();
}

}  // namespace

template <typename T>
Status GroupLookupWeightsGrad(const CpuExec& exec, const GroupColumn<T>& column,
                              const CombinedGrad<T>& combined_grad,
                              Span<ComputeType<T>> weights_grad) {
  KeptPairs<T> kept;
  FE_RETURN_IF_ERROR(KeepPairs(column, &kept));
  PostLookupPlan<T> plan;
  FE_RETURN_IF_ERROR(PlanPostLookup(exec, kept.pairs, &plan));
  Buffer<ComputeType<T>> kept_grad;
  FE_RETURN_IF_ERROR(kept_grad.Allocate(kept.pairs.num_pairs()));
  RunPostLookupWeightsGrad(exec, kept.pairs, plan, combined_grad, kept_grad.span());
  std::fill(weights_grad.begin(), weights_grad.end(), ComputeType<T>{0});
  for (int64_t k = 0; k < kept_grad.size(); ++k) weights_grad[kept.positions[k]] = kept_grad[k];
  return Status();
}

#define FE_INSTANTIATE(T)                                                       \
  template Status GroupLookupWeightsGrad(const CpuExec&, const GroupColumn<T>&, \
                                         const CombinedGrad<T>&, Span<ComputeType<T>>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
