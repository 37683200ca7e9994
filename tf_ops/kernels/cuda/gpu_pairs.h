// The inputs of the post-lookup ops as core's Pairs, on a GPU.

#ifndef FUSED_EMBEDDING_KERNELS_CUDA_GPU_PAIRS_H_
#define FUSED_EMBEDDING_KERNELS_CUDA_GPU_PAIRS_H_

#include <vector>

#include "tf_ops/core/lookup/rows/device_inputs.h"
#include "tf_ops/kernels/cuda/gpu_weights.h"
#include "tf_ops/kernels/cuda/tf_gpu_exec.h"
#include "tf_ops/kernels/pairs_input.h"
#include "tf_ops/kernels/sparse_inputs.h"

namespace fused_embedding {

template <typename T>
class GpuPairs {
 public:
  using V = CoreType<T>;

  explicit GpuPairs(tensorflow::OpKernelContext* ctx) : ctx_(ctx), exec_(ctx) {}
  const TfGpuExec& exec() const { return exec_; }
  const PairsInput<T>& in() const { return in_; }

  // As ReadPairsV1 and ReadPairsV2. Waits only for the check of a permutation.
  Status Read(const PostLookupAttrs& attrs, bool is_v2, int64_t num_rows) {
    FE_RETURN_IF_ERROR(ReadShards(ctx_, attrs, num_rows, &in_));
    FE_RETURN_IF_ERROR(is_v2 ? ReadV2(attrs) : ReadV1(attrs, num_rows));
    tensorflow::OpInputList emb_shards;
    FE_RETURN_IF_ERROR(InputList(ctx_, "emb_shards", &emb_shards));
    std::vector<const V*> shards;
    for (const tensorflow::Tensor& shard : emb_shards) shards.push_back(InputSpan<T>(shard).data);
    FE_RETURN_IF_ERROR(Locate(shards, &rows_));
    in_.pairs.rows = {rows_.data(), rows_.size()};
    in_.pairs.address_bits = static_cast<uint64_t>(in_.pairs.dim) * sizeof(V);
    for (const V* shard : shards) in_.pairs.address_bits |= reinterpret_cast<uintptr_t>(shard);
    return Status();
  }

  // As LocateGradRows. Value is V or const V.
  template <typename Value>
  Status Locate(const std::vector<Value*>& shards, DeviceBuffer<Value*>* rows) const {
    std::vector<ShardRows> located;
    int64_t num_rows = 0;
    for (size_t p = 0; p < shards.size(); ++p) {
      located.push_back({reinterpret_cast<uintptr_t>(shards[p]), num_rows});
      num_rows += in_.shard_sizes[p];
    }
    FE_RETURN_IF_ERROR(rows->Allocate(exec_, num_rows));
    return LocateRows(exec_, AsSpan(located), in_.pairs.dim * int64_t{sizeof(V)}, in_.permutation,
                      {reinterpret_cast<uintptr_t*>(rows->data()), num_rows});
  }

 private:
  using C = ComputeType<V>;

  Status ReadV1(const PostLookupAttrs& attrs, int64_t num_rows) {
    ShardInputs inputs;
    FE_RETURN_IF_ERROR(ReadShardInputs(ctx_, attrs, num_rows, in_.shard_sizes, &inputs));
    int64_t num_pairs = 0;
    for (const int64_t size : in_.shard_sizes) num_pairs += size;
    FE_RETURN_IF_ERROR(CheckNumPairs(num_pairs));
    FE_RETURN_IF_ERROR(row_ids_.Allocate(exec_, num_pairs));
    FE_RETURN_IF_ERROR(unique_idx_.Allocate(exec_, num_pairs));
    FE_RETURN_IF_ERROR(is_zero_row_.Allocate(exec_, inputs.flags.size));
    const bool has_weights = inputs.weights.size() > 0;
    FE_RETURN_IF_ERROR(weights_.Allocate(exec_, has_weights ? num_pairs : 0));
    int64_t first = 0;
    for (int p = 0; p < inputs.indices.size(); ++p) {
      const tensorflow::Tensor& indices = inputs.indices[p];
      FE_RETURN_IF_ERROR(CopyRowIds(exec_,
                                    {InputSpan<int64_t>(indices).data, indices.dim_size(0),
                                     indices.dim_size(1), kConcatenatedIndices},
                                    row_ids_.data() + first));
      if (has_weights) {
        FE_RETURN_IF_ERROR(ConvertGpuWeights<C>(exec_, inputs.weights[p], weights_.data() + first));
      }
      first += indices.dim_size(0);
    }
    FE_RETURN_IF_ERROR(Enumerate(exec_, unique_idx_.span()));
    FE_RETURN_IF_ERROR(FlagsToBools(exec_, inputs.flags, is_zero_row_.span()));
    in_.pairs.row_ids = {row_ids_.data(), num_pairs, 1, kConcatenatedIndices};
    in_.pairs.unique_idx = unique_idx_.span();
    in_.pairs.weights = weights_.span();
    in_.pairs.is_zero_row = is_zero_row_.span();
    return Status();
  }

  Status ReadV2(const PostLookupAttrs& attrs) {
    const tensorflow::Tensor* weights = nullptr;
    FE_RETURN_IF_ERROR(ReadInputsV2(ctx_, attrs, &in_, &weights));
    if (!in_.permutation.empty()) {
      FE_RETURN_IF_ERROR(CheckPermutation(exec_, AsSpan(in_.shard_sizes), in_.permutation));
    }
    return weights ? ReadGpuWeights(exec_, *weights, &weights_, &in_.pairs.weights) : Status();
  }

  tensorflow::OpKernelContext* ctx_;
  TfGpuExec exec_;
  PairsInput<T> in_;  // its buffers are not used
  DeviceBuffer<const V*> rows_;
  DeviceBuffer<int32_t> unique_idx_;
  DeviceBuffer<int64_t> row_ids_;
  DeviceBuffer<bool> is_zero_row_;
  DeviceBuffer<C> weights_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_CUDA_GPU_PAIRS_H_
