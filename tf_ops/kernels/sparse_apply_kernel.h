// The ops that step on rows of variables, for any device.
//
// Core is the stage on a device, made of the OpKernelContext:
//
//   Apply(in)       Plan and Run
//   Copy(from, to)  of a tensor's values

#ifndef FUSED_EMBEDDING_KERNELS_SPARSE_APPLY_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_SPARSE_APPLY_KERNEL_H_

#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tf_ops/core/optimizer/sparse_apply.h"
#include "tf_ops/kernels/sparse_apply_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

template <typename Core>
class SparseApplyOp : public tensorflow::OpKernel {
 public:
  explicit SparseApplyOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, FindRule(GetAttr<std::string>(ctx, "rule"), &rule_));
    FE_REQUIRES_OK(ctx, CheckRuleForArrays(rule_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) final {
    SparseApplyInputs in;
    OP_REQUIRES_OK(ctx, FindInputs(ctx, &in));
    FE_REQUIRES_OK(ctx, CheckNumInputs(in, rule_));
    ComputeOn(ctx, in);
  }

 protected:
  // The end of Compute, with the variables and slots that may be written to.
  void Update(tensorflow::OpKernelContext* ctx, const SparseApplyInputs& in,
              const std::vector<tensorflow::Tensor*>& tensors) const {
    SparseApplyInput apply;
    apply.rule = rule_;
    FE_REQUIRES_OK(ctx, ReadUpdates(ctx, in, tensors, &apply));
    FE_REQUIRES_OK(ctx, Core(ctx).Apply(apply));
  }

 private:
  virtual void ComputeOn(tensorflow::OpKernelContext* ctx, const SparseApplyInputs& in) = 0;

  RuleInfo rule_;
};

// Of resource variables. Their locks are held whatever use_locking of the optimizer says: under
// them, memory that nobody else refers to can be written to in place, and a variable need not be
// put into copy_on_read_mode, in which each dense read copies it (docs/decisions/011).
template <typename Core>
class ResourceSparseApplyOp final : public SparseApplyOp<Core> {
 public:
  using SparseApplyOp<Core>::SparseApplyOp;

 private:
  void ComputeOn(tensorflow::OpKernelContext* ctx, const SparseApplyInputs& in) override {
    std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> variables;
    std::vector<Mutex*> mutexes;
    for (int i = in.variables.start; i < in.slots.stop; ++i) {
      variables.emplace_back();
      OP_REQUIRES_OK(ctx, FindVariable(ctx, i, &variables.back()));
      mutexes.push_back(variables.back()->mu());
    }
    Locks locks;
    FE_REQUIRES_OK(ctx, locks.Take(std::move(mutexes), true));
    std::vector<tensorflow::Tensor*> tensors;
    for (const auto& variable : variables) {
      OP_REQUIRES_OK(ctx, MakeWritable(ctx, variable.get()));
      UseHugePages(ctx, *variable->tensor());
      tensors.push_back(variable->tensor());
    }
    this->Update(ctx, in, tensors);
  }

  static absl::Status FindVariable(tensorflow::OpKernelContext* ctx, int input,
                                   tensorflow::core::RefCountPtr<tensorflow::Var>* variable) {
    const tensorflow::Tensor& handle = ctx->input(input);
    if (handle.NumElements() != 1) {
      return ToTfStatus(
          InvalidArgument("each of variables and slots must be one handle, got shape ",
                          handle.shape().DebugString()));
    }
    const absl::Status status = LookupResource(ctx, HandleFromInput(ctx, input), variable);
    return absl::IsNotFound(status) ? NotInitialized() : status;
  }

  static absl::Status NotInitialized() {
    return absl::FailedPreconditionError(
        "a variable or slot is not initialized; run its initializer before the training step");
  }

  // Copies the variable if a dense read still refers to its memory.
  static absl::Status MakeWritable(tensorflow::OpKernelContext* ctx, tensorflow::Var* variable) {
    tensorflow::Tensor* tensor = variable->tensor();
    if (!variable->is_initialized || !tensor->IsInitialized()) return NotInitialized();
    // What is not plain bytes is of no type that can be trained, as the checks will say.
    const bool is_plain = tensorflow::DataTypeCanUseMemcpy(tensor->dtype());
    if (tensor->RefCountIsOne() || tensor->NumElements() == 0 || !is_plain) return absl::OkStatus();
    tensorflow::Tensor copy;
    const absl::Status status = ctx->allocate_temp(tensor->dtype(), tensor->shape(), &copy);
    if (!status.ok()) return status;
    const Status copied = Core(ctx).Copy(*tensor, &copy);
    if (copied.ok()) *tensor = copy;
    return ToTfStatus(copied);
  }
};

// Handles and hyperparameters are on the host.
#define FE_REGISTER_RESOURCE_SPARSE_APPLY(device, Core)             \
  REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceSparseApply") \
                              .Device(device)                       \
                              .HostMemory("variables")              \
                              .HostMemory("slots")                  \
                              .HostMemory("hyperparameters"),       \
                          ResourceSparseApplyOp<Core>);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_SPARSE_APPLY_KERNEL_H_
