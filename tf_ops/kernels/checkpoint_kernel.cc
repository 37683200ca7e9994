#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/logging.h"
#include "tf_ops/core/checkpoint/checkpoint.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::tstring;

class SaveOp : public TableOp {
 public:
  using TableOp::TableOp;
  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    tstring path;
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 1, "path", &path));
    FE_REQUIRES_OK(ctx, SaveTable(*resource.table(), path));
  }
};

class RestoreOp : public TableOp {
 public:
  explicit RestoreOp(tensorflow::OpKernelConstruction* ctx) : TableOp(ctx) {
    FE_REQUIRES_OK(ctx, ReadPartition(ctx, &partition_));
  }

  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    FE_REQUIRES_OK(ctx, CheckVector("paths", ctx->input(1)));
    const auto input = ctx->input(1).flat<tstring>();
    const std::vector<std::string> paths(input.data(), input.data() + input.size());
    std::string warning;
    FE_REQUIRES_OK(ctx, RestoreTable(TfExec(ctx), {paths.data(), input.size()}, partition_,
                                     resource.table(), &warning));
    if (!warning.empty()) LOG(WARNING) << name() << ": " << warning;
  }

 private:
  PartitionFilter partition_;
};

REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableSave").Device(tensorflow::DEVICE_CPU), SaveOp);
REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableRestore").Device(tensorflow::DEVICE_CPU), RestoreOp);

}  // namespace
}  // namespace fused_embedding
