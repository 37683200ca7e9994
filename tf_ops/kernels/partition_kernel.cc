#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/partition.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class PartitionOp : public tensorflow::OpKernel {
 public:
  explicit PartitionOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadPartitionAxis(ctx));
    FE_REQUIRES_OK(ctx, ReadPartitionStrategy(ctx, &strategy_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& ids = ctx->input(0);
    FE_REQUIRES_OK(ctx, CheckVector("input", ids));
    OpInputList partition_shapes;
    OP_REQUIRES_OK(ctx, ctx->input_list("partition_shapes", &partition_shapes));
    std::vector<int64_t> shard_rows;
    FE_REQUIRES_OK(ctx, ReadShardRows(partition_shapes, &shard_rows));
    const int num_shards = partition_shapes.size();
    const PartitionInput in{InputSpan<int64_t>(ids), {shard_rows.data(), num_shards}, strategy_};

    Tensor* permutation = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, num_shards, {in.ids.size, 2}, &permutation));
    std::vector<int64_t> shard_sizes(shard_rows.size());
    FE_REQUIRES_OK(
        ctx, PlanPartition(in, OutputSpan<int32_t>(permutation), {shard_sizes.data(), num_shards}));

    std::vector<Span<int64_t>> shards;
    for (int p = 0; p < num_shards; ++p) {
      Tensor* shard = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, p, {shard_sizes[p]}, &shard));
      shards.push_back(OutputSpan<int64_t>(shard));
    }
    RunPartition(in, InputSpan<int32_t>(*permutation), {shards.data(), num_shards});
  }

 private:
  PartitionStrategy strategy_;
};

REGISTER_KERNEL_BUILDER(Name("PartitionWithPermutation").Device(tensorflow::DEVICE_CPU),
                        PartitionOp);

}  // namespace
}  // namespace fused_embedding
