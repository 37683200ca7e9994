#include <algorithm>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/optimizer/apply.cu.h"
#include "tf_ops/kernels/apply_kernel.h"
#include "tf_ops/kernels/cuda/gpu_table_resource.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelContext;

class GpuTableApplyOp : public tensorflow::OpKernel {
 public:
  explicit GpuTableApplyOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadApplyAttrs(ctx, &attrs_));
  }

  // Tables may get slots before another one turns out to have no room for its own.
  void Compute(OpKernelContext* ctx) override {
    GpuTables tables;
    OP_REQUIRES_OK(ctx, tables.LookUp(ctx, "resources"));
    std::vector<RowLayout> layouts;
    for (size_t t = 0; t < tables.size(); ++t) layouts.push_back(tables[t].layout());
    std::vector<TableStep> steps;
    FE_REQUIRES_OK(ctx, ReadTableSteps(ctx, attrs_, layouts, &steps));
    const GpuWork work(ctx);
    const std::vector<const GpuTableResource*> resources = tables.resources();
    FE_REQUIRES_OK(ctx, InTables(AsSpan(resources), EnsureSlots(work.exec(), tables, steps)));
    FE_REQUIRES_OK(ctx, ApplySteps(work.exec(), tables, steps));
    for (size_t t = 0; t < tables.size(); ++t) ++tables[t].step();
  }

 private:
  Status EnsureSlots(const GpuExec& exec, const GpuTables& tables,
                     const std::vector<TableStep>& steps) const {
    for (const TableStep& step : steps) {
      FE_RETURN_IF_ERROR(CheckHyperparameters(attrs_.rule, step.hyperparameters));
    }
    for (size_t t = 0; t < steps.size(); ++t) {
      std::vector<Slot> slots = attrs_.rule.Slots(tables[t].layout().dim, steps[t].hyperparameters);
      for (Slot& slot : slots) slot.name = attrs_.slot_prefixes[t] + "/" + slot.name;
      FE_RETURN_IF_ERROR(tables[t].table()->EnsureSlots(exec, AsSpan(slots)));
    }
    return Status();
  }

  // Handles of the lookup may be stale: another one, of the same step, may have moved rows. So the
  // keys are found again, those of all tables in one launch.
  Status ApplySteps(const GpuExec& exec, const GpuTables& tables,
                    const std::vector<TableStep>& steps) const {
    int64_t num_keys = 0;
    std::vector<int64_t> ends;
    for (const TableStep& step : steps) ends.push_back(num_keys += step.keys.size);
    DeviceBuffer<int64_t> keys, handles;
    FE_RETURN_IF_ERROR(keys.Allocate(exec, num_keys));
    FE_RETURN_IF_ERROR(handles.Allocate(exec, num_keys));
    for (size_t t = 0; t < steps.size(); ++t) {
      const Span<const int64_t> of_table = steps[t].keys;
      if (of_table.empty()) continue;
      FE_RETURN_IF_ERROR(CopyOnDevice(exec, of_table.data, of_table.size * int64_t{sizeof(int64_t)},
                                      keys.data() + ends[t] - of_table.size));
    }
    FE_RETURN_IF_ERROR(
        FindInGpuTables(exec, {tables.tables(), AsSpan(ends), keys.span()}, {handles.span()}));
    std::vector<GpuApplyInput> inputs;
    for (size_t t = 0; t < steps.size(); ++t) {
      const Span<const int64_t> of_table = {handles.data() + ends[t] - steps[t].keys.size,
                                            steps[t].keys.size};
      inputs.push_back({tables.tables()[static_cast<int64_t>(t)], of_table, steps[t].grads,
                        attrs_.slot_prefixes[t]});
    }
    return ApplyByHyperparameters(exec, steps, std::move(inputs));
  }

  // One call for all tables that have the same.
  Status ApplyByHyperparameters(const GpuExec& exec, const std::vector<TableStep>& steps,
                                std::vector<GpuApplyInput> inputs) const {
    std::vector<bool> is_done(steps.size());
    for (size_t t = 0; t < steps.size(); ++t) {
      if (is_done[t]) continue;
      const Span<const double> numbers = steps[t].hyperparameters;
      std::vector<GpuApplyInput> alike;
      for (size_t other = t; other < steps.size(); ++other) {
        const Span<const double> others = steps[other].hyperparameters;
        if (!std::equal(numbers.begin(), numbers.end(), others.begin(), others.end())) continue;
        is_done[other] = true;
        alike.push_back(inputs[other]);
      }
      FE_RETURN_IF_ERROR(Apply(exec, attrs_.rule, numbers, AsSpan(std::as_const(alike))));
    }
    return Status();
  }

  ApplyAttrs attrs_;
};

REGISTER_KERNEL_BUILDER(
    FE_ON_GPU("EmbeddingVariableApply").HostMemory("resources").HostMemory("hyperparameters"),
    GpuTableApplyOp);

}  // namespace
}  // namespace fused_embedding
