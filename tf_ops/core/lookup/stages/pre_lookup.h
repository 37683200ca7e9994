// Stages 1 and 3 in one step, the first half of the v1 lookup: prune, fill, and send each (id, row)
// pair to the shard of its id. Duplicates stay.
//
// Example, div, shard_rows [4, 2], num_rows 3, prune and fill:
//   ids [5, -1, 1]   rows [0, 0, 2]
//   shard 0: ids [1, 0] rows [2, 1]   shard 1: ids [1] rows [0]   flags [0 1 0 | 1 0 1]

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PRE_LOOKUP_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PRE_LOOKUP_H_

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/lookup/stages/partition.h"
#include "tf_ops/core/lookup/stages/prune_and_fill.h"

namespace fused_embedding {

struct PreLookupInput {
  PruneAndFillInput<float> pairs;  // without weights
  Span<const int64_t> shard_rows;  // [P]
  PartitionStrategy strategy = PartitionStrategy::kDiv;
};

struct PreLookupPlan {
  Buffer<int64_t> ids;          // [nnz_out] pruned and filled
  Buffer<int64_t> indices;      // [nnz_out, 2]
  Buffer<int32_t> permutation;  // [nnz_out, 2] (shard, position)
  PartitionInput Partition(const PreLookupInput& in) const {
    return {ids.span(), in.shard_rows, in.strategy};
  }
};

// Validates `in`; writes the number of pairs of each shard [P], and `flags` [num_rows + nnz]: 1 for
// a row left without ids, then 1 for a pair whose id is valid.
Status PlanPreLookup(const PreLookupInput& in, Span<int32_t> flags, Span<int64_t> shard_sizes,
                     PreLookupPlan* plan);

// Writes shard p's local ids [shard_sizes[p]] and indices [shard_sizes[p], 2], in input order.
void RunPreLookup(const PreLookupInput& in, const PreLookupPlan& plan,
                  Span<const Span<int64_t>> shard_ids, Span<const Span<int64_t>> shard_indices);

// The same on a GPU, with the same result. shard_rows, shard_sizes and the lists of shards are host
// memory. Plan waits once, for the sizes of the shards and whether all is valid.
struct GpuPreLookupPlan {
  SortedKeys by_shard;  // where pairs come from: ids, then rows; see pre_lookup.cu.cc
  DeviceBuffer<int32_t> shard_begins;  // [P + 1] of by_shard
  GpuPartitionPlan shards;
  int64_t num_pairs = 0;
};

Status PlanPreLookup(const GpuExec& exec, const PreLookupInput& in, Span<int32_t> flags,
                     Span<int64_t> shard_sizes, GpuPreLookupPlan* plan);

Status RunPreLookup(const GpuExec& exec, const PreLookupInput& in, const GpuPreLookupPlan& plan,
                    Span<const Span<int64_t>> shard_ids, Span<const Span<int64_t>> shard_indices);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_STAGES_PRE_LOOKUP_H_
