// Files of a table's content, wherever its rows are.

#ifndef FUSED_EMBEDDING_KERNELS_CHECKPOINT_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_CHECKPOINT_KERNEL_H_

#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/logging.h"
#include "tf_ops/core/checkpoint/checkpoint.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <typename Resource>
class SaveTableOp : public OpThatReadsTable<Resource> {
 public:
  explicit SaveTableOp(tensorflow::OpKernelConstruction* ctx) : OpThatReadsTable<Resource>(ctx) {
    as_one_file_ = GetAttr<bool>(ctx, "as_one_file");
  }

  void ComputeOn(tensorflow::OpKernelContext* ctx, const Resource& resource) override {
    tensorflow::tstring path;
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 1, "path", &path));
    FE_REQUIRES_OK(ctx, resource.ReadContent(ctx, [&](const EmbeddingTable& table) {
      return SaveTable(table, path, as_one_file_);
    }));
  }

 private:
  bool as_one_file_;
};

template <typename Resource>
class RestoreTableOp : public OpOnTable<Resource> {
 public:
  explicit RestoreTableOp(tensorflow::OpKernelConstruction* ctx) : OpOnTable<Resource>(ctx) {
    FE_REQUIRES_OK(ctx, ReadPartition(ctx, &partition_));
  }

  void ComputeOn(tensorflow::OpKernelContext* ctx, const Resource& resource) override {
    const tensorflow::TensorShape& shape = ctx->input(1).shape();
    OP_REQUIRES(ctx, shape.dims() == 1 || shape.dims() == 2,
                absl::InvalidArgumentError(absl::StrCat("paths must have shape [p] or [k, p], got ",
                                                        shape.DebugString())));
    const int64_t num_links = shape.dims() == 1 ? 1 : shape.dim_size(0);
    const auto input = ctx->input(1).flat<tensorflow::tstring>();
    const std::vector<std::string> paths(input.data(), input.data() + input.size());
    std::string warning;
    TableReadiness::Restore restore(resource.readiness());
    FE_REQUIRES_OK(ctx, resource.ReplaceContent(ctx, [&](EmbeddingTable* table) {
      return RestoreTable(TfExec(ctx), {AsSpan(paths), num_links}, partition_, table, &warning);
    }));
    restore.Succeed();
    if (!warning.empty()) LOG(WARNING) << this->name() << ": " << warning;
  }

 private:
  PartitionFilter partition_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_CHECKPOINT_KERNEL_H_
