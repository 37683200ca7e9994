#include "tf_ops/kernels/sparse_apply_input.h"

#include <algorithm>
#include <utility>

#include "tf_ops/kernels/sparse_inputs.h"

namespace fused_embedding {
namespace {

using tensorflow::Tensor;

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

}  // namespace

absl::Status FindInputs(tensorflow::OpKernelContext* ctx, SparseApplyInputs* in) {
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

Status CheckNumInputs(const SparseApplyInputs& in, const RuleInfo& rule) {
  const int num_variables = in.variables.size();
  if (in.grads.size() != num_variables || in.indices.size() != num_variables) {
    return InvalidArgument("there must be a gradient and indices for each of the ", num_variables,
                           " variables, got ", in.grads.size(), " and ", in.indices.size());
  }
  if (in.slots.size() == rule.num_slots * num_variables) return Status();
  return InvalidArgument("rule ", rule.name, " needs ", rule.num_slots, " slots for each of the ",
                         num_variables, " variables, got ", in.slots.size(), " in all");
}

Locks::~Locks() {
  for (Mutex* mutex : held_) mutex->unlock();
}

Status Locks::Take(std::vector<Mutex*> mutexes, bool do_lock) {
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

Status ReadUpdates(tensorflow::OpKernelContext* ctx, const SparseApplyInputs& in,
                   const std::vector<Tensor*>& tensors, SparseApplyInput* apply) {
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
    update.indices = InputIds(indices);
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

}  // namespace fused_embedding
