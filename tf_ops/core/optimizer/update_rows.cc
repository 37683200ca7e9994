#include "tf_ops/core/optimizer/update_rows.h"

#include <iterator>
#include <utility>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/optimizer/rules.h"
#include "tf_ops/core/optimizer/update_row.h"

namespace fused_embedding {
namespace {

// Gradients in flight, and rows, whose header alone may be in the cache: 8 and 16 were equal.
constexpr int64_t kBatchRowsAhead = 8;

// One loop for every dim: loops for the usual ones, compiled with their number of values, were no
// faster (dim 16 to 64, Adagrad and Adam; the time goes to memory).
template <int64_t kVectorBytes, typename T, typename Rule, size_t... kSlot>
FE_INLINE void UpdateEachRow(const Rule& rule, const RowsUpdate& update,
                             std::index_sequence<kSlot...>) {
  using C = ComputeType<T>;
  const int64_t dim = update.dim;
  const RowBatch& batch = update.batch;
  const T* grads = reinterpret_cast<const T*>(update.grads);
  [[maybe_unused]] const int64_t* slot_offsets = update.slot_offsets;
  const auto prefetch = [&](int64_t i) FE_INLINE_LAMBDA {
    if (i >= batch.n || batch.rows[i] == nullptr) return;
    PrefetchRow(batch.rows[i], update.row_bytes);
    PrefetchRow(grads + batch.positions[i] * dim, dim * static_cast<int64_t>(sizeof(T)));
  };
  for (int64_t i = 0; i < kBatchRowsAhead; ++i) prefetch(i);
  for (int64_t i = 0; i < batch.n; ++i) {
    prefetch(i + kBatchRowsAhead);
    char* row = batch.rows[i];
    if (row == nullptr) continue;
    UpdateRow<kVectorBytes>(rule, reinterpret_cast<T*>(row + update.value_offset),
                            grads + batch.positions[i] * dim, dim,
                            reinterpret_cast<C*>(row + slot_offsets[kSlot])...);
  }
}

template <typename Rule, typename T>
void UpdateRowsBy(const RowsUpdate& update) {
  const Rule rule(update.hyperparameters);
  constexpr auto kSlots = std::make_index_sequence<Rule::kSlots.size()>();
  WithSimd([&](auto vector_bytes)
               FE_INLINE_LAMBDA { UpdateEachRow<vector_bytes(), T>(rule, update, kSlots); });
}

}  // namespace

template <typename T>
Span<const UpdateRows> UpdateRowsOfRules() {
#define FE_UPDATE_ROWS(Rule) UpdateRowsBy<Rule<ComputeType<T>>, T>,
  static constexpr UpdateRows kFunctions[] = {FE_FOR_EACH_RULE(FE_UPDATE_ROWS)};
#undef FE_UPDATE_ROWS
  return {kFunctions, static_cast<int64_t>(std::size(kFunctions))};
}

#define FE_INSTANTIATE(T) template Span<const UpdateRows> UpdateRowsOfRules<T>();
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
