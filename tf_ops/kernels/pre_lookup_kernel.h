// The op of stages 1 and 3 of v1 for any device.
//
// Core calls the stages on the device: Plan and Run, as core/lookup/stages/pre_lookup.h has them.

#ifndef FUSED_EMBEDDING_KERNELS_PRE_LOOKUP_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_PRE_LOOKUP_KERNEL_H_

#include <limits>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/stages/pre_lookup.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <typename Core>
class PreLookupOp : public tensorflow::OpKernel {
 public:
  explicit PreLookupOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), column_(ctx) {
    FE_REQUIRES_OK(ctx, ReadPartitionAxis(ctx));
    FE_REQUIRES_OK(ctx, ReadPartitionStrategy(ctx, &attrs_.strategy));
    attrs_.pairs.fill = GetAttr<bool>(ctx, "fill_empty_row");
    attrs_.pairs.prune = GetAttr<bool>(ctx, "prune_invalid_id");
    attrs_.pairs.default_id = GetAttr<int64_t>(ctx, "default_id");
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    tensorflow::OpInputList partition_shapes;
    OP_REQUIRES_OK(ctx, ctx->input_list("partition_shapes", &partition_shapes));
    const int num_shards = partition_shapes.size();
    const tensorflow::Tensor& ids = ctx->input(num_shards);
    const tensorflow::Tensor& indices = ctx->input(num_shards + 1);
    PreLookupInput in = attrs_;
    FE_REQUIRES_OK(ctx, CheckIdsAndIndices(ids, indices));
    FE_REQUIRES_OK(ctx, ReadNumRows(ctx->input(num_shards + 2), &in.pairs.num_rows));
    std::vector<int64_t> shard_rows;
    FE_REQUIRES_OK(ctx, ReadShardRows(partition_shapes, &shard_rows));
    in.pairs.ids = InputSpan<int64_t>(ids);
    in.pairs.indices = InputSpan<int64_t>(indices);
    in.shard_rows = {shard_rows.data(), num_shards};

    tensorflow::Tensor* flags = nullptr;
    OP_REQUIRES(
        ctx, in.pairs.num_rows <= std::numeric_limits<int64_t>::max() - in.pairs.ids.size,
        ToTfStatus(ResourceExhausted("sp_dense_shape has too many rows: ", in.pairs.num_rows)));
    OP_REQUIRES_OK(
        ctx, AllocateOutput(ctx, 2 * num_shards, {in.pairs.num_rows + in.pairs.ids.size}, &flags));
    std::vector<int64_t> shard_sizes(shard_rows.size());
    Core core(ctx);
    FE_REQUIRES_OK(ctx, column_.Of(core.Plan(in, OutputSpan<int32_t>(flags),
                                             {shard_sizes.data(), num_shards})));

    std::vector<Span<int64_t>> shard_ids, shard_indices;
    for (int p = 0; p < num_shards; ++p) {
      tensorflow::Tensor* output = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, p, {shard_sizes[p]}, &output));
      shard_ids.push_back(OutputSpan<int64_t>(output));
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, num_shards + p, {shard_sizes[p], 2}, &output));
      shard_indices.push_back(OutputSpan<int64_t>(output));
    }
    FE_REQUIRES_OK(
        ctx, core.Run(in, {shard_ids.data(), num_shards}, {shard_indices.data(), num_shards}));
  }

 private:
  ColumnName column_;
  PreLookupInput attrs_;
};

// Ids and rows are on the device, shapes on the host.
#define FE_REGISTER_PRE_LOOKUP(device, Core)                    \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingSparsePreLookUp") \
                              .Device(device)                   \
                              .HostMemory("partition_shapes")   \
                              .HostMemory("sp_dense_shape"),    \
                          PreLookupOp<Core>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_PRE_LOOKUP_KERNEL_H_
