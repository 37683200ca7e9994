#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/optimizer/apply.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelContext;

class ApplyOp : public TableOp {
 public:
  explicit ApplyOp(tensorflow::OpKernelConstruction* ctx) : TableOp(ctx) {
    slot_prefix_ = GetAttr<std::string>(ctx, "slot_prefix");
    FE_REQUIRES_OK(ctx, FindRule(GetAttr<std::string>(ctx, "rule"), &rule_));
  }

  void ComputeOn(OpKernelContext* ctx, const TableResource& resource) override {
    ApplyInput in;
    FE_REQUIRES_OK(ctx, ReadInput(ctx, *resource.table(), &in));
    FE_REQUIRES_OK(ctx, Apply(TfExec(ctx), rule_, in, resource.table()));
    resource.table()->AdvanceStep();
  }

 private:
  Status ReadInput(OpKernelContext* ctx, const EmbeddingTable& table, ApplyInput* in) const {
    FE_RETURN_IF_ERROR(CheckVector("keys", ctx->input(1)));
    FE_RETURN_IF_ERROR(CheckVector("handles", ctx->input(2)));
    FE_RETURN_IF_ERROR(CheckVector("hyperparameters", ctx->input(4)));
    in->keys = InputSpan<int64_t>(ctx->input(1));
    in->handles = InputSpan<int64_t>(ctx->input(2));
    in->hyperparameters = InputSpan<double>(ctx->input(4));
    in->grads = static_cast<const char*>(ctx->input(3).data());
    in->slot_prefix = slot_prefix_;
    if (!in->handles.empty() && in->handles.size != in->keys.size) {
      return InvalidArgument("handles must be empty or have one element for each of the ",
                             in->keys.size, " keys, got ", in->handles.size);
    }
    return CheckValues("grad", ctx->input(3), in->keys.size, table);
  }

  std::string slot_prefix_;
  RuleInfo rule_;
};

REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableApply").Device(tensorflow::DEVICE_CPU), ApplyOp);

}  // namespace
}  // namespace fused_embedding
