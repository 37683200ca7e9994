#include "tf_ops/kernels/checkpoint_kernel.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/checkpoint/checkpoint.h"
#include "tf_ops/core/checkpoint/table_file.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::tstring;

class SaveIncrementOp : public ReadingTableOp {
 public:
  using ReadingTableOp::ReadingTableOp;
  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    tstring path;
    std::vector<std::string> base_paths, link_paths;
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 1, "path", &path));
    FE_REQUIRES_OK(ctx, ReadPaths(ctx, 2, "base_paths", &base_paths));
    FE_REQUIRES_OK(ctx, ReadPaths(ctx, 3, "link_paths", &link_paths));
    const Increment increment{path, AsSpan(base_paths), AsSpan(link_paths)};
    FE_REQUIRES_OK(ctx, SaveIncrement(increment, resource.table()));
  }

 private:
  static Status ReadPaths(OpKernelContext* ctx, int input, const char* name,
                          std::vector<std::string>* paths) {
    FE_RETURN_IF_ERROR(CheckVector(name, ctx->input(input)));
    const auto flat = ctx->input(input).flat<tstring>();
    paths->assign(flat.data(), flat.data() + flat.size());
    return Status();
  }
};

class ReadRowsOp : public OpKernel {
 public:
  explicit ReadRowsOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    tensorflow::DataType dtype;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &dtype));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("embedding_dim", &layout_.dim));
    layout_.value_type = ToValueType(dtype);
  }

  void Compute(OpKernelContext* ctx) override {
    tstring path;
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 0, "path", &path));
    FileRows rows;
    FE_REQUIRES_OK(ctx, ReadRows(path, layout_, &rows));
    const auto num_keys = static_cast<int64_t>(rows.keys.size());
    const auto num_removed = static_cast<int64_t>(rows.removed_keys.size());
    const tensorflow::TensorShape shapes[] = {
        tensorflow::TensorShape({num_keys}), tensorflow::TensorShape({num_keys, layout_.dim}),
        tensorflow::TensorShape({num_removed}), tensorflow::TensorShape({}),
        tensorflow::TensorShape({})};
    tensorflow::Tensor* outputs[5];
    for (int i = 0; i < 5; ++i) {
      OP_REQUIRES_OK(ctx, ctx->allocate_output(i, shapes[i], &outputs[i]));
    }
    std::copy(rows.keys.begin(), rows.keys.end(), outputs[0]->flat<int64_t>().data());
    std::copy(rows.values.begin(), rows.values.end(), static_cast<char*>(outputs[1]->data()));
    std::copy(rows.removed_keys.begin(), rows.removed_keys.end(),
              outputs[2]->flat<int64_t>().data());
    outputs[3]->scalar<bool>()() = rows.is_incremental;
    outputs[4]->scalar<int64_t>()() = static_cast<int64_t>(rows.seed);
  }

 private:
  RowLayout layout_;
};

REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableSave").Device(tensorflow::DEVICE_CPU),
                        SaveTableOp<TableResource>);
REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableSaveIncrement").Device(tensorflow::DEVICE_CPU),
                        SaveIncrementOp);
REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableReadRows").Device(tensorflow::DEVICE_CPU),
                        ReadRowsOp);
REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableRestore").Device(tensorflow::DEVICE_CPU),
                        RestoreTableOp<TableResource>);

}  // namespace
}  // namespace fused_embedding
