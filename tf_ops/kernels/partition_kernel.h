// The op of stage 3 for any device.
//
// Core calls the stage on the device: Plan and Run, as core/lookup/stages/partition.h has them.

#ifndef FUSED_EMBEDDING_KERNELS_PARTITION_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_PARTITION_KERNEL_H_

#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/stages/partition.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <typename Core>
class PartitionOp : public tensorflow::OpKernel {
 public:
  explicit PartitionOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx), column_(ctx) {
    FE_REQUIRES_OK(ctx, ReadPartitionAxis(ctx));
    FE_REQUIRES_OK(ctx, ReadPartitionStrategy(ctx, &strategy_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& ids = ctx->input(0);
    FE_REQUIRES_OK(ctx, CheckVector("input", ids));
    tensorflow::OpInputList partition_shapes;
    OP_REQUIRES_OK(ctx, ctx->input_list("partition_shapes", &partition_shapes));
    std::vector<int64_t> shard_rows;
    FE_REQUIRES_OK(ctx, ReadShardRows(partition_shapes, &shard_rows));
    const int num_shards = partition_shapes.size();
    const PartitionInput in{InputSpan<int64_t>(ids), {shard_rows.data(), num_shards}, strategy_};

    tensorflow::Tensor* permutation = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, num_shards, {in.ids.size, 2}, &permutation));
    std::vector<int64_t> shard_sizes(shard_rows.size());
    Core core(ctx);
    FE_REQUIRES_OK(ctx, column_.Of(core.Plan(in, OutputSpan<int32_t>(permutation),
                                             {shard_sizes.data(), num_shards})));

    std::vector<Span<int64_t>> shards;
    for (int p = 0; p < num_shards; ++p) {
      tensorflow::Tensor* shard = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, p, {shard_sizes[p]}, &shard));
      shards.push_back(OutputSpan<int64_t>(shard));
    }
    FE_REQUIRES_OK(ctx,
                   core.Run(in, InputSpan<int32_t>(*permutation), {shards.data(), num_shards}));
  }

 private:
  ColumnName column_;
  PartitionStrategy strategy_;
};

// Ids and the permutation are on the device, shapes of tables on the host.
#define FE_REGISTER_PARTITION(device, Core)                                           \
  REGISTER_KERNEL_BUILDER(                                                            \
      Name("PartitionWithPermutation").Device(device).HostMemory("partition_shapes"), \
      PartitionOp<Core>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_PARTITION_KERNEL_H_
