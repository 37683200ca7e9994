// Stage 1 of the fused lookup: drop invalid ids, then give each empty row the default id.
//
// Example, num_rows = 4, default_id = 0:
//   ids      [7, -1, 3]     rows      [0, 0, 2]
//   ids_out  [7, 3, 0, 0]   rows_out  [0, 2, 1, 3]   is_row_empty [F, T, F, T]
//
// The rule is that of tf.nn.safe_embedding_lookup_sparse: an id is invalid when negative, and,
// where weights prune, when not (weight > 0). Kept pairs stay in input order; filled rows follow
// them in ascending order, as DeepRec's do. Rows may come in any order.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PRUNE_AND_FILL_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PRUNE_AND_FILL_H_

#include <cstdint>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/inline.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Which pairs stay, for every lookup.
struct PruneRule {
  bool ids = false;      // drop id < 0
  bool weights = false;  // drop not (weight > 0), which is true of NaN

  template <typename C>
  FE_INLINE bool Keeps(int64_t id, C weight) const {
    return !(ids && id < 0) && !(weights && !(weight > 0));
  }
};

template <typename Weight>
struct PruneAndFillInput {
  Span<const int64_t> ids;      // [nnz]
  Span<const int64_t> indices;  // [nnz, 2]: row in [0, num_rows), column (not looked at)
  Span<const Weight> weights;   // [nnz], or empty: no weights
  int64_t num_rows = 0;
  int64_t default_id = -1;  // negative: empty rows are filled with id 0
  double default_weight = 1;
  bool prune = false;          // drop id < 0
  bool prune_weights = false;  // with prune: drop not (weight > 0) as well
  bool fill = false;           // add a pair to each empty row

  FE_INLINE int64_t filled_id() const { return default_id > 0 ? default_id : 0; }
  FE_INLINE bool IsKept(int64_t i) const {
    const PruneRule rule{prune, prune && prune_weights};
    return rule.Keeps(ids[i], rule.weights ? Load(weights[i]) : ComputeType<Weight>{1});
  }
};

template <typename Weight>
struct PruneAndFillOutput {
  Span<int64_t> ids;      // [nnz_out]
  Span<int64_t> indices;  // [nnz_out, 2]; the column of a filled row is 0
  Span<Weight> weights;   // [nnz_out], or empty where there are no weights
};

struct PruneAndFillPlan {
  int64_t num_kept = 0;
  int64_t num_filled = 0;
  int64_t nnz_out() const { return num_kept + num_filled; }
};

// Validates `in`, writes `is_row_empty` [num_rows] (no id is left in the row) and the sizes of the
// outputs. The only pass that can fail: the caller allocates between Plan and Run.
template <typename Weight>
Status PlanPruneAndFill(const PruneAndFillInput<Weight>& in, Span<bool> is_row_empty,
                        PruneAndFillPlan* plan);

// Writes `out` for the `is_row_empty` and `plan` that Plan computed from the same `in`.
template <typename Weight>
void RunPruneAndFill(const PruneAndFillInput<Weight>& in, const PruneAndFillPlan& plan,
                     Span<const bool> is_row_empty, const PruneAndFillOutput<Weight>& out);

// The gradient of the kept weights: weights_grad[i] [nnz] is kept_grad's [nnz_out] entry of pair i,
// or 0 for a pruned pair. InvalidArgument where kept_grad has fewer entries than pairs are kept.
template <typename Weight>
Status PruneAndFillGrad(const PruneAndFillInput<Weight>& in, Span<const Weight> kept_grad,
                        Span<Weight> weights_grad);

// What errors call the rows, and whether the lengths of `in` agree.
constexpr char kPruneAndFillRows[] = "sp_indices";
template <typename Weight>
Status CheckSizes(const PruneAndFillInput<Weight>& in);

// The same on a GPU, with the same result. Plan waits once, for the sizes of the outputs and the
// first row that is out of range.
struct GpuPruneAndFillPlan {
  PruneAndFillPlan sizes;
  DeviceBuffer<int64_t> kept_before;  // [nnz + 1] number of kept pairs before each
  DeviceBuffer<int64_t>
      filled_before;  // [num_rows + 1] number of filled rows before each, or empty
};

template <typename Weight>
Status PlanPruneAndFill(const GpuExec& exec, const PruneAndFillInput<Weight>& in,
                        Span<bool> is_row_empty, GpuPruneAndFillPlan* plan);

template <typename Weight>
Status RunPruneAndFill(const GpuExec& exec, const PruneAndFillInput<Weight>& in,
                       const GpuPruneAndFillPlan& plan, Span<const bool> is_row_empty,
                       const PruneAndFillOutput<Weight>& out);

// Does not wait: an entry that kept_grad lacks is 0.
template <typename Weight>
Status PruneAndFillGrad(const GpuExec& exec, const PruneAndFillInput<Weight>& in,
                        Span<const Weight> kept_grad, Span<Weight> weights_grad);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PRUNE_AND_FILL_H_
