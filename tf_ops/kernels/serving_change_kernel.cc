#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tf_ops/core/table/serving_change.h"
#include "tf_ops/core/table/serving_lock.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;

// A delta, of which everything has been looked at.
struct Delta {
  struct Variable {
    tensorflow::core::RefCountPtr<Var> variable;
    const Tensor* value;
  };
  std::vector<TableResourcePtr> resources;
  std::vector<TableChange> changes;
  std::vector<Variable> variables;
};

absl::Status ReadTables(OpKernelContext* ctx, Delta* delta) {
  TF_RETURN_IF_ERROR(LookupTables(ctx, "resources", &delta->resources));
  OpInputList keys, values, removed_keys, is_full;
  TF_RETURN_IF_ERROR(ctx->input_list("keys", &keys));
  TF_RETURN_IF_ERROR(ctx->input_list("values", &values));
  TF_RETURN_IF_ERROR(ctx->input_list("removed_keys", &removed_keys));
  TF_RETURN_IF_ERROR(ctx->input_list("is_full", &is_full));
  const size_t num_tables = delta->resources.size();
  if (static_cast<size_t>(values.size()) != num_tables) {
    return absl::InvalidArgumentError(absl::StrCat("values must be given for each of the ",
                                                   num_tables, " tables, got ", values.size()));
  }
  const auto read = [&](int i, EmbeddingTable* table) {
    FE_RETURN_IF_ERROR(CheckVector("keys", keys[i]));
    FE_RETURN_IF_ERROR(CheckVector("removed_keys", removed_keys[i]));
    FE_RETURN_IF_ERROR(
        CheckValues("values", values[i], keys[i].NumElements(), table->config().layout));
    if (is_full[i].dims() != 0) {
      return InvalidArgument("is_full must be a scalar for each table, got shape ",
                             is_full[i].shape().DebugString());
    }
    TableChange change;
    change.table = table;
    change.content.keys = InputSpan<int64_t>(keys[i]);
    change.content.values = static_cast<const char*>(values[i].data());
    change.removed_keys = InputSpan<int64_t>(removed_keys[i]);
    change.is_full = is_full[i].scalar<bool>()();
    delta->changes.push_back(change);
    return Status();
  };
  for (size_t i = 0; i < num_tables; ++i) {
    TF_RETURN_IF_ERROR(ToTfStatus(read(static_cast<int>(i), delta->resources[i]->table())));
  }
  return absl::OkStatus();
}

tensorflow::DataType TypeOf(Var* variable) {
  const tensorflow::tf_shared_lock lock(*variable->mu());
  return variable->tensor()->dtype();
}

absl::Status ReadVariables(OpKernelContext* ctx, Delta* delta) {
  OpInputList handles, values;
  TF_RETURN_IF_ERROR(ctx->input_list("variables", &handles));
  TF_RETURN_IF_ERROR(ctx->input_list("new_values", &values));
  if (handles.size() != values.size()) {
    return absl::InvalidArgumentError(absl::StrCat("new_values must be given for each of the ",
                                                   handles.size(), " variables, got ",
                                                   values.size()));
  }
  for (int i = 0; i < handles.size(); ++i) {
    tensorflow::core::RefCountPtr<Var> variable;
    if (handles[i].NumElements() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("variables must be handles of one variable each, got ",
                       handles[i].DebugString(), " as variables[", i, "]"));
    }
    TF_RETURN_IF_ERROR(
        LookupResource(ctx, handles[i].flat<tensorflow::ResourceHandle>()(0), &variable));
    const tensorflow::DataType dtype = TypeOf(variable.get());
    if (dtype != values[i].dtype()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "variables[", i, "] holds ", tensorflow::DataTypeString(dtype), ", but new_values[", i,
          "] is ", tensorflow::DataTypeString(values[i].dtype()), "; cast the new value"));
    }
    delta->variables.push_back({std::move(variable), &values[i]});
  }
  return absl::OkStatus();
}

// Values are shared with the input, as by AssignVariableOp.
void PutVariables(const Delta& delta) {
  for (const Delta::Variable& put : delta.variables) {
    const tensorflow::mutex_lock lock(*put.variable->mu());
    *put.variable->tensor() = *put.value;
    put.variable->is_initialized = true;
  }
}

class ChangeOp : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;
  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    const auto delta = std::make_shared<Delta>();
    OP_REQUIRES_OK_ASYNC(ctx, ReadTables(ctx, delta.get()), done);
    OP_REQUIRES_OK_ASYNC(ctx, ReadVariables(ctx, delta.get()), done);
    const std::shared_ptr<ServingLock> lock = delta->resources[0]->serving_lock();
    WaitForServingLock(ctx, lock, LockMode::kAlone, [=](const absl::Status& status) {
      OP_REQUIRES_OK_ASYNC(ctx, status, done);
      // Not in this thread: it may be that of the request that went last.
      (*ctx->runner())([=] {
        const Span<const TableChange> changes = AsSpan(delta->changes);
        const Status put = PutChanges(TfExec(ctx), changes, lock.get());
        if (put.ok()) PutVariables(*delta);
        lock->Release(LockMode::kAlone);
        FE_REQUIRES_OK_ASYNC(ctx, put, done);
        done();
      });
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableServingChange").Device(tensorflow::DEVICE_CPU),
                        ChangeOp);

}  // namespace
}  // namespace fused_embedding
