#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tf_ops/core/optimizer/sparse_apply.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;
// Deprecated in newer TensorFlow, but what its variables have.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
using Mutex = tensorflow::mutex;
#pragma GCC diagnostic pop

// Where the inputs of one name are.
struct InputRange {
  int start = 0;
  int stop = 0;
  int size() const { return stop - start; }
};

struct Inputs {
  InputRange variables, slots, grads, indices, hyperparameters;
};

absl::Status FindInputs(OpKernelContext* ctx, Inputs* in) {
  const std::pair<const char*, InputRange*> ranges[] = {{"variables", &in->variables},
                                                        {"slots", &in->slots},
                                                        {"grads", &in->grads},
                                                        {"indices", &in->indices},
                                                        {"hyperparameters", &in->hyperparameters}};
  for (const auto& [name, range] : ranges) {
    const absl::Status status = ctx->op_kernel().InputRange(name, &range->start, &range->stop);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

Status CheckNumInputs(const Inputs& in, const RuleInfo& rule) {
  const int num_variables = in.variables.size();
  if (in.grads.size() != num_variables || in.indices.size() != num_variables) {
    return InvalidArgument("there must be a gradient and indices for each of the ", num_variables,
                           " variables, got ", in.grads.size(), " and ", in.indices.size());
  }
  if (in.slots.size() == rule.num_slots * num_variables) return Status();
  return InvalidArgument("rule ", rule.name, " needs ", rule.num_slots, " slots for each of the ",
                         num_variables, " variables, got ", in.slots.size(), " in all");
}

// Holds mutexes in the order of their addresses, as TensorFlow's own updates take them.
class Locks {
 public:
  Locks() = default;
  Locks(const Locks&) = delete;
  Locks& operator=(const Locks&) = delete;
  ~Locks() {
    for (Mutex* mutex : held_) mutex->unlock();
  }

  // InvalidArgument if one is there twice: rows that are updated beside each other must not be the
  // same.
  Status Take(std::vector<Mutex*> mutexes, bool do_lock) {
    std::sort(mutexes.begin(), mutexes.end());
    if (std::adjacent_find(mutexes.begin(), mutexes.end()) != mutexes.end()) {
      return InvalidArgument(
          "a variable is there twice among variables and slots, but each may be but once; sum its "
          "gradients first, or update it in two steps");
    }
    if (!do_lock) return Status();
    for (Mutex* mutex : mutexes) mutex->lock();
    held_ = std::move(mutexes);
    return Status();
  }

 private:
  std::vector<Mutex*> held_;
};

std::string ShapeOf(const Tensor& tensor) { return tensor.shape().DebugString(); }

bool HaveSameRows(const Tensor& a, const Tensor& b) {
  if (a.dims() != b.dims()) return false;
  for (int i = 1; i < a.dims(); ++i) {
    if (a.dim_size(i) != b.dim_size(i)) return false;
  }
  return true;
}

Status CheckVariable(int number, const Tensor& variable, const Tensor& grad,
                     const Tensor& indices) {
  if (variable.dtype() != grad.dtype()) {
    return InvalidArgument("variables[", number, "] holds ",
                           tensorflow::DataTypeString(variable.dtype()), ", but grads[", number,
                           "] is ", tensorflow::DataTypeString(grad.dtype()),
                           "; cast the gradient to the variable's type");
  }
  if (variable.dims() < 1 || !HaveSameRows(variable, grad)) {
    return InvalidArgument("variables[", number, "] must be a table [num_rows, ...] and grads[",
                           number, "] have rows of the same shape, got shapes ", ShapeOf(variable),
                           " and ", ShapeOf(grad));
  }
  if (indices.dims() == 1 && indices.NumElements() == grad.dim_size(0)) return Status();
  return InvalidArgument("indices[", number,
                         "] must be a vector with an index for each row of grads[", number,
                         "], got shapes ", ShapeOf(indices), " and ", ShapeOf(grad));
}

RowIndices ToRowIndices(const Tensor& tensor) {
  RowIndices indices;
  indices.size = tensor.NumElements();
  if (tensor.dtype() == tensorflow::DT_INT64) {
    indices.int64s = tensor.flat<int64_t>().data();
  } else {
    indices.int32s = tensor.flat<int32_t>().data();
  }
  return indices;
}

// What all variables need; `tensors` are the variables, then the slots.
Status ReadUpdates(OpKernelContext* ctx, const Inputs& in, const std::vector<Tensor*>& tensors,
                   SparseApplyInput* apply) {
  const Tensor& hyperparameters = ctx->input(in.hyperparameters.start);
  FE_RETURN_IF_ERROR(CheckVector("hyperparameters", hyperparameters));
  apply->hyperparameters = InputSpan<double>(hyperparameters);
  const int64_t num_slots = apply->rule.num_slots;
  for (int i = 0; i < in.variables.size(); ++i) {
    const Tensor& variable = *tensors[static_cast<size_t>(i)];
    const Tensor& grad = ctx->input(in.grads.start + i);
    const Tensor& indices = ctx->input(in.indices.start + i);
    FE_RETURN_IF_ERROR(CheckVariable(i, variable, grad, indices));
    SparseUpdate update;
    update.type = ToValueType(variable.dtype());
    update.num_rows = variable.dim_size(0);
    update.dim = 1;
    for (int axis = 1; axis < variable.dims(); ++axis) update.dim *= variable.dim_size(axis);
    update.values = static_cast<char*>(variable.data());
    update.grads = static_cast<const char*>(grad.data());
    update.indices = ToRowIndices(indices);
    for (int64_t k = 0; k < num_slots; ++k) {
      const int64_t number = i * num_slots + k;
      const Tensor& slot = *tensors[static_cast<size_t>(in.variables.size() + number)];
      if (slot.dtype() != variable.dtype() || slot.shape() != variable.shape()) {
        return InvalidArgument("slots[", number, "] must be of the type and shape of variables[", i,
                               "], ", tensorflow::DataTypeString(variable.dtype()),
                               ShapeOf(variable), ", got ",
                               tensorflow::DataTypeString(slot.dtype()), ShapeOf(slot));
      }
      update.slots[static_cast<size_t>(k)] = static_cast<char*>(slot.data());
    }
    apply->updates.push_back(update);
  }
  return Status();
}

class SparseApplyOp : public tensorflow::OpKernel {
 public:
  explicit SparseApplyOp(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, FindRule(GetAttr<std::string>(ctx, "rule"), &rule_));
    FE_REQUIRES_OK(ctx, CheckRuleForArrays(rule_));
  }

  void Compute(OpKernelContext* ctx) final {
    Inputs in;
    OP_REQUIRES_OK(ctx, FindInputs(ctx, &in));
    FE_REQUIRES_OK(ctx, CheckNumInputs(in, rule_));
    ComputeOn(ctx, in);
  }

 protected:
  // The end of Compute, with the variables and slots that may be written to.
  void Update(OpKernelContext* ctx, const Inputs& in, const std::vector<Tensor*>& tensors) const {
    SparseApplyInput apply;
    apply.rule = rule_;
    FE_REQUIRES_OK(ctx, ReadUpdates(ctx, in, tensors, &apply));
    SparseApplyPlan plan;
    const TfExec exec(ctx);
    FE_REQUIRES_OK(ctx, PlanSparseApply(exec, apply, &plan));
    RunSparseApply(exec, apply, &plan);
  }

 private:
  virtual void ComputeOn(OpKernelContext* ctx, const Inputs& in) = 0;

  RuleInfo rule_;
};

// Of reference variables.
class RefSparseApplyOp final : public SparseApplyOp {
 public:
  explicit RefSparseApplyOp(tensorflow::OpKernelConstruction* ctx) : SparseApplyOp(ctx) {
    use_locking_ = GetAttr<bool>(ctx, "use_locking");
  }

 private:
  void ComputeOn(OpKernelContext* ctx, const Inputs& in) override {
    std::vector<Mutex*> mutexes;
    for (int i = in.variables.start; i < in.slots.stop; ++i) {
      mutexes.push_back(ctx->input_ref_mutex(i));
    }
    Locks locks;
    FE_REQUIRES_OK(ctx, locks.Take(std::move(mutexes), use_locking_));
    std::vector<Tensor> held;
    for (int i = in.variables.start; i < in.slots.stop; ++i) {
      held.push_back(ctx->mutable_input(i, use_locking_));
    }
    std::vector<Tensor*> tensors;
    for (Tensor& tensor : held) tensors.push_back(&tensor);
    Update(ctx, in, tensors);
  }

  bool use_locking_ = false;
};

// Of resource variables. Their locks are held whatever use_locking of the optimizer says: under
// them, memory that nobody else refers to can be written to in place, and a variable need not be
// put into copy_on_read_mode, in which each dense read copies it (docs/decisions/011).
class ResourceSparseApplyOp final : public SparseApplyOp {
 public:
  using SparseApplyOp::SparseApplyOp;

 private:
  void ComputeOn(OpKernelContext* ctx, const Inputs& in) override {
    std::vector<tensorflow::core::RefCountPtr<Var>> variables;
    std::vector<Mutex*> mutexes;
    for (int i = in.variables.start; i < in.slots.stop; ++i) {
      variables.emplace_back();
      OP_REQUIRES_OK(ctx, FindVariable(ctx, i, &variables.back()));
      mutexes.push_back(variables.back()->mu());
    }
    Locks locks;
    FE_REQUIRES_OK(ctx, locks.Take(std::move(mutexes), true));
    std::vector<Tensor*> tensors;
    for (const auto& variable : variables) {
      OP_REQUIRES_OK(ctx, MakeWritable(ctx, variable.get()));
      tensors.push_back(variable->tensor());
    }
    Update(ctx, in, tensors);
  }

  static absl::Status FindVariable(OpKernelContext* ctx, int input,
                                   tensorflow::core::RefCountPtr<Var>* variable) {
    const Tensor& handle = ctx->input(input);
    if (handle.NumElements() != 1) {
      return ToTfStatus(InvalidArgument(
          "each of variables and slots must be one handle, got shape ", ShapeOf(handle)));
    }
    const absl::Status status = LookupResource(ctx, HandleFromInput(ctx, input), variable);
    return absl::IsNotFound(status) ? NotInitialized() : status;
  }

  static absl::Status NotInitialized() {
    return absl::FailedPreconditionError(
        "a variable or slot is not initialized; run its initializer before the training step");
  }

  // Copies the variable if a dense read still refers to its memory.
  static absl::Status MakeWritable(OpKernelContext* ctx, Var* variable) {
    Tensor* tensor = variable->tensor();
    if (!variable->is_initialized || !tensor->IsInitialized()) return NotInitialized();
    // What is not plain bytes is of no type that can be trained, as the checks will say.
    const bool is_plain = tensorflow::DataTypeCanUseMemcpy(tensor->dtype());
    if (tensor->RefCountIsOne() || tensor->NumElements() == 0 || !is_plain) return absl::OkStatus();
    Tensor copy;
    const absl::Status status = ctx->allocate_temp(tensor->dtype(), tensor->shape(), &copy);
    if (!status.ok()) return status;
    std::memcpy(copy.data(), tensor->data(), tensor->TotalBytes());
    *tensor = copy;
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingSparseApply").Device(tensorflow::DEVICE_CPU),
                        RefSparseApplyOp);
REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingResourceSparseApply").Device(tensorflow::DEVICE_CPU),
                        ResourceSparseApplyOp);

}  // namespace
}  // namespace fused_embedding
