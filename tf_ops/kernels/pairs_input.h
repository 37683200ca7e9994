// The inputs of the post-lookup ops as core's Pairs: for v1 pairs shard by shard, for v2 unique ids
// and a permutation.

#ifndef FUSED_EMBEDDING_KERNELS_PAIRS_INPUT_H_
#define FUSED_EMBEDDING_KERNELS_PAIRS_INPUT_H_

#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/rows/pairs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

// Attrs that all post-lookup ops have, those that only some have at their defaults.
struct PostLookupAttrs {
  Combiner combiner = Combiner::kMean;
  float max_norm = -1;
  int64_t default_id = -1;
  bool fill_empty_row = true;
  bool use_sparse_weights = true;
};

Status ReadPostLookupAttrs(tensorflow::OpKernelConstruction* ctx, PostLookupAttrs* attrs);

// Pairs, and the memory that they point to where that is not an input's.
template <typename T>
struct PairsInput {
  Pairs<CoreType<T>> pairs;
  std::vector<int64_t> shard_sizes;          // [P] rows of each of emb_shards
  Span<const int32_t> permutation;           // v2, P > 1: [num_unique, 2] (shard, position)
  Buffer<const CoreType<T>*> rows;           // [num_unique]
  Buffer<int32_t> unique_idx;                // v1: [num_pairs] 0, 1, 2, ...
  Buffer<int64_t> row_ids;                   // v1: [num_pairs]
  Buffer<bool> is_zero_row;                  // v1: [num_rows]
  Buffer<ComputeType<CoreType<T>>> weights;  // [num_pairs] where they are of another type
};

// The inputs of either version, checked without a look at the data, for any device. ReadShards also
// sets what `attrs` say.
template <typename T>
Status ReadShards(tensorflow::OpKernelContext* ctx, const PostLookupAttrs& attrs, int64_t num_rows,
                  PairsInput<T>* in);
// v1: of each shard; `weights` may be none. `flags` are empty where no row is made zero.
struct ShardInputs {
  tensorflow::OpInputList indices, weights;
  Span<const int32_t> flags;
};
Status ReadShardInputs(tensorflow::OpKernelContext* ctx, const PostLookupAttrs& attrs,
                       int64_t num_rows, const std::vector<int64_t>& shard_sizes,
                       ShardInputs* inputs);
// v2: all but the weights, which are null where there are none. The permutation is empty with one
// shard.
template <typename T>
Status ReadInputsV2(tensorflow::OpKernelContext* ctx, const PostLookupAttrs& attrs,
                    PairsInput<T>* in, const tensorflow::Tensor** weights);

// Reads emb_shards, partitioned_indices, row_empty_and_invalid_flags and partitioned_weights.
template <typename T>
Status ReadPairsV1(tensorflow::OpKernelContext* ctx, const PostLookupAttrs& attrs, int64_t num_rows,
                   PairsInput<T>* in);

// Reads emb_shards, partition_permutation, indices_before_unique, unique_idxs, is_row_empty and
// sp_weights_values.
template <typename T>
Status ReadPairsV2(tensorflow::OpKernelContext* ctx, const PostLookupAttrs& attrs, int64_t num_rows,
                   PairsInput<T>* in);

// Allocates outputs 0 .. P-1 with the shapes of emb_shards, for their gradients.
template <typename T>
Status AllocateGradShards(tensorflow::OpKernelContext* ctx, const PairsInput<T>& in,
                          std::vector<CoreType<T>*>* shards);

// Points at the row of each unique id (v1: pair) in matrices of the shapes of emb_shards.
template <typename T>
Status LocateGradRows(const PairsInput<T>& in, const std::vector<CoreType<T>*>& shards,
                      Buffer<CoreType<T>*>* rows);

// What errors of v1 call the rows of the pairs.
constexpr char kConcatenatedIndices[] = "concat(partitioned_indices)";

// top_grad must be a matrix [num_rows, dim] of the width of emb_shards.
Status ReadTopGrad(tensorflow::OpKernelContext* ctx, int64_t* num_rows);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_PAIRS_INPUT_H_
