#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/optimizer/apply.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class ApplyOp : public tensorflow::OpKernel {
 public:
  explicit ApplyOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    slot_prefixes_ = GetAttr<std::vector<std::string>>(ctx, "slot_prefixes");
    FE_REQUIRES_OK(ctx, FindRule(GetAttr<std::string>(ctx, "rule"), &rule_));
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<TableResourcePtr> tables;
    OP_REQUIRES_OK(ctx, LookupTables(ctx, "resources", &tables));
    std::vector<ApplyInput> inputs;
    FE_REQUIRES_OK(ctx, ReadInputs(ctx, tables, &inputs));
    FE_REQUIRES_OK(ctx, Apply(TfExec(ctx), rule_, AsSpan(inputs)));
    for (const TableResourcePtr& resource : tables) resource->table()->AdvanceStep();
  }

 private:
  Status ReadInputs(OpKernelContext* ctx, const std::vector<TableResourcePtr>& tables,
                    std::vector<ApplyInput>* inputs) const {
    OpInputList keys, handles, grads, hyperparameters;
    FE_RETURN_IF_ERROR(InputList(ctx, "keys", &keys));
    FE_RETURN_IF_ERROR(InputList(ctx, "handles", &handles));
    FE_RETURN_IF_ERROR(InputList(ctx, "grads", &grads));
    FE_RETURN_IF_ERROR(InputList(ctx, "hyperparameters", &hyperparameters));
    const int num_tables = static_cast<int>(tables.size());
    if (grads.size() != num_tables || slot_prefixes_.size() != tables.size()) {
      return InvalidArgument("grads and slot_prefixes must have an entry for each of the ",
                             num_tables, " tables, got ", grads.size(), " and ",
                             slot_prefixes_.size());
    }
    for (int t = 0; t < num_tables; ++t) {
      ApplyInput in;
      in.table = tables[static_cast<size_t>(t)]->table();
      in.slot_prefix = slot_prefixes_[static_cast<size_t>(t)];
      FE_RETURN_IF_ERROR(CheckVector("hyperparameters", hyperparameters[t]));
      in.hyperparameters = InputSpan<double>(hyperparameters[t]);
      FE_RETURN_IF_ERROR(ReadGradient(keys[t], handles[t], grads[t], &in));
      inputs->push_back(in);
    }
    return Status();
  }

  static Status ReadGradient(const Tensor& keys, const Tensor& handles, const Tensor& grad,
                             ApplyInput* in) {
    FE_RETURN_IF_ERROR(CheckVector("keys", keys));
    FE_RETURN_IF_ERROR(CheckVector("handles", handles));
    in->keys = InputSpan<int64_t>(keys);
    in->handles = InputSpan<int64_t>(handles);
    in->grads = static_cast<const char*>(grad.data());
    return CheckValues("grads", grad, in->keys.size, *in->table);
  }

  std::vector<std::string> slot_prefixes_;
  RuleInfo rule_;
};

REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableApply").Device(tensorflow::DEVICE_CPU), ApplyOp);

}  // namespace
}  // namespace fused_embedding
