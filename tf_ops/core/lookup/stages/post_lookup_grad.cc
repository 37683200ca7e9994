#include "tf_ops/core/lookup/stages/post_lookup_grad.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tf_ops/core/lookup/rows/row_grad.h"
#include "tf_ops/core/lookup/rows/row_math.h"

namespace fused_embedding {
namespace {

template <typename T>
class RowGradient {
 public:
  using C = ComputeType<T>;

  RowGradient(const Pairs<T>& pairs, const PostLookupGradPlan<T>& plan, Span<const T> combined_grad)
      : pairs_(pairs),
        groups_(plan.by_unique),
        row_scale_(plan.row_scale.span()),
        combined_grad_(combined_grad.data) {}

  template <int64_t kVectorBytes>
  FE_INLINE void Compute(int64_t begin, int64_t end, Span<T* const> rows_grad) const {
    const int64_t last_pair = groups_.end(end - 1);
    for (int64_t u = begin; u < end; ++u) {
      const PairRange range{groups_.begin(u), groups_.end(u), last_pair};
      const ClipGrad<T> clip =
          MakeClipGrad(pairs_.rows[u], pairs_.dim, pairs_.max_norm, range, *this);
      StoreRowGrad<kVectorBytes>(clip, pairs_.dim, range, *this, rows_grad[u]);
    }
  }

  FE_INLINE ScaledRow<T> grad(int64_t i) const {
    const int64_t k = groups_.pair(i);
    const int64_t row = pairs_.row_ids[k];
    const C scale = row_scale_[row];
    return {PassedBack(combined_grad_, row, pairs_.dim, scale), scale * pairs_.weight(k)};
  }
  // Without the scale, which need not be in the cache.
  FE_INLINE const T* row_to_fetch(int64_t i) const {
    return combined_grad_ + pairs_.row_ids[groups_.pair(i)] * pairs_.dim;
  }

 private:
  const Pairs<T>& pairs_;
  const PairGroups& groups_;
  Span<const C> row_scale_;
  const T* combined_grad_;
};

template <typename T>
FE_INLINE void AddPairByPair(const Pairs<T>& pairs, Span<const ComputeType<T>> row_scale,
                             const T* combined_grad, Span<T* const> rows_grad) {
  const int64_t dim = pairs.dim;
  for (T* row_grad : rows_grad) std::memset(row_grad, 0, static_cast<size_t>(dim) * sizeof(T));
  ForEachBlock(dim, [&](auto width_constant, int64_t column, int64_t width) FE_INLINE_LAMBDA {
    constexpr int64_t kWidth = decltype(width_constant)::value;
    for (int64_t k = 0; k < pairs.num_pairs(); ++k) {
      const int64_t row = pairs.row_ids[k];
      const T* row_grad = PassedBack(combined_grad, row, dim, row_scale[row]);
      if (row_grad == nullptr) continue;
      AddScaled<kWidth>(row_scale[row] * pairs.weight(k), row_grad + column, width,
                        rows_grad[pairs.unique_idx[k]] + column);
    }
  });
}

}  // namespace

template <typename T>
Status CheckNumIds(const Pairs<T>& pairs, Span<const int32_t> num_ids) {
  if (num_ids.empty() || !pairs.weights.empty() || num_ids.size == pairs.num_rows) return Status();
  return InvalidArgument("feature_nums must have one entry for each of the ", pairs.num_rows,
                         " rows of top_grad, but has ", num_ids.size);
}

template <typename T>
Status PlanPostLookupGrad(const Pairs<T>& pairs, Span<const int32_t> num_ids,
                          PostLookupGradPlan<T>* plan) {
  using C = ComputeType<T>;
  FE_RETURN_IF_ERROR(CheckPairs(pairs));
  FE_RETURN_IF_ERROR(CheckRowIds(pairs.row_ids, pairs.num_rows));
  plan->is_grouped = !IsSmallGrad<T>(pairs.num_pairs(), pairs.rows.size, pairs.dim, pairs.max_norm);
  if (plan->is_grouped) {
    FE_RETURN_IF_ERROR(
        GroupByUnique(SerialExec(), pairs.unique_idx, pairs.rows.size, &plan->by_unique));
  }
  if (num_ids.empty() || !pairs.weights.empty()) return RowScales(pairs, &plan->row_scale);
  FE_RETURN_IF_ERROR(CheckNumIds(pairs, num_ids));
  FE_RETURN_IF_ERROR(plan->row_scale.Allocate(pairs.num_rows));
  for (int64_t row = 0; row < pairs.num_rows; ++row) {
    const C count = static_cast<C>(std::max(num_ids[row], 0));
    plan->row_scale[row] = ScaleOfRow(pairs, row, count);
  }
  return Status();
}

template <typename T>
void RunPostLookupGrad(const CpuExec& exec, const Pairs<T>& pairs,
                       const PostLookupGradPlan<T>& plan, Span<const T> combined_grad,
                       Span<T* const> rows_grad) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    if (!plan.is_grouped) {
      WithSimd([&]() FE_INLINE_LAMBDA {
        AddPairByPair(pairs, plan.row_scale.span(), combined_grad.data, rows_grad);
      });
      return;
    }
  }
  const RowGradient<T> gradient(pairs, plan, combined_grad);
  const int64_t num_unique = pairs.rows.size;
  const int64_t pairs_of_id = 1 + pairs.num_pairs() / std::max<int64_t>(num_unique, 1);
  const int64_t unique_ns = pairs_of_id * (4 + pairs.dim / 8);
  exec.ParallelFor(num_unique, unique_ns, [&](int64_t begin, int64_t end) {
    WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
      gradient.template Compute<vector_bytes()>(begin, end, rows_grad);
    });
  });
}

#define FE_INSTANTIATE(T)                                                                        \
  template Status CheckNumIds(const Pairs<T>&, Span<const int32_t>);                             \
  template Status PlanPostLookupGrad(const Pairs<T>&, Span<const int32_t>,                       \
                                     PostLookupGradPlan<T>*);                                    \
  template void RunPostLookupGrad(const CpuExec&, const Pairs<T>&, const PostLookupGradPlan<T>&, \
                                  Span<const T>, Span<T* const>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
