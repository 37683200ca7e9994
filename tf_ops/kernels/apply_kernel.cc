#include "tf_ops/kernels/apply_kernel.h"

#include "tf_ops/core/optimizer/apply.h"

namespace fused_embedding {
namespace {

class ApplyOp : public tensorflow::OpKernel {
 public:
  explicit ApplyOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadApplyAttrs(ctx, &attrs_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    std::vector<TableResourcePtr> tables;
    OP_REQUIRES_OK(ctx, LookupTables(ctx, "resources", &tables));
    std::vector<RowLayout> layouts;
    for (const TableResourcePtr& resource : tables) layouts.push_back(resource->layout());
    std::vector<TableStep> steps;
    FE_REQUIRES_OK(ctx, ReadTableSteps(ctx, attrs_, layouts, &steps));
    std::vector<ApplyInput> inputs;
    for (size_t t = 0; t < steps.size(); ++t) {
      const TableStep& step = steps[t];
      inputs.push_back({tables[t]->table(), step.keys, step.handles, step.grads,
                        attrs_.slot_prefixes[t], step.hyperparameters});
    }
    FE_REQUIRES_OK(ctx, Apply(TfExec(ctx), attrs_.rule, AsSpan(inputs)));
    for (const TableResourcePtr& resource : tables) resource->table()->AdvanceStep();
  }

 private:
  ApplyAttrs attrs_;
};

REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableApply").Device(tensorflow::DEVICE_CPU), ApplyOp);

}  // namespace
}  // namespace fused_embedding
