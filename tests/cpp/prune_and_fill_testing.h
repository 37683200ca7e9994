// Inputs of stage 1, and its results on the CPU.

#ifndef FUSED_EMBEDDING_TESTS_CPP_PRUNE_AND_FILL_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_PRUNE_AND_FILL_TESTING_H_

#include <string>
#include <vector>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/lookup/stages/prune_and_fill.h"

namespace fused_embedding {

using Ints = std::vector<int64_t>;

template <typename Weight>
struct PruneAndFillResult {
  Array<bool> is_row_empty;
  Array<int64_t> ids, indices;
  Array<Weight> weights;
  std::string bytes() const {
    return is_row_empty.bytes() + ids.bytes() + indices.bytes() + weights.bytes();
  }
};

template <typename Weight>
Status PruneAndFill(const PruneAndFillInput<Weight>& in, PruneAndFillResult<Weight>* result) {
  result->is_row_empty = Array<bool>(in.num_rows);
  PruneAndFillPlan plan;
  FE_RETURN_IF_ERROR(PlanPruneAndFill(in, result->is_row_empty.span(), &plan));
  result->ids = Array<int64_t>(plan.nnz_out());
  result->indices = Array<int64_t>(2 * plan.nnz_out());
  result->weights = Array<Weight>(in.weights.empty() ? 0 : plan.nnz_out());
  RunPruneAndFill(in, plan, result->is_row_empty.view(),
                  {result->ids.span(), result->indices.span(), result->weights.span()});
  return Status();
}

// Ids and rows [(id, row), ...] as an input; columns 7, 8, 9 ...
struct PruneAndFillBatch {
  Array<int64_t> ids;
  Array<int64_t> indices;

  PruneAndFillBatch(const Ints& batch_ids, const Ints& rows)
      : ids(Array<int64_t>::Of(batch_ids)), indices(2 * static_cast<int64_t>(rows.size())) {
    for (size_t i = 0; i < rows.size(); ++i) {
      indices[2 * static_cast<int64_t>(i)] = rows[i];
      indices[2 * static_cast<int64_t>(i) + 1] = 7 + static_cast<int64_t>(i);
    }
  }

  PruneAndFillInput<float> Input(int64_t num_rows) const {
    PruneAndFillInput<float> in;
    in.ids = ids.span();
    in.indices = indices.span();
    in.num_rows = num_rows;
    in.prune = true;
    in.fill = true;
    return in;
  }
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_PRUNE_AND_FILL_TESTING_H_
