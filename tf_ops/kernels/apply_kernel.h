// What a step of an optimizer on the rows of tables takes, wherever the rows are.

#ifndef FUSED_EMBEDDING_KERNELS_APPLY_KERNEL_H_
#define FUSED_EMBEDDING_KERNELS_APPLY_KERNEL_H_

#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/optimizer/rule_info.h"
#include "tf_ops/core/table/row_layout.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

// Attrs rule and slot_prefixes.
struct ApplyAttrs {
  RuleInfo rule;
  std::vector<std::string> slot_prefixes;  // of each table
};

inline Status ReadApplyAttrs(tensorflow::OpKernelConstruction* ctx, ApplyAttrs* attrs) {
  attrs->slot_prefixes = GetAttr<std::vector<std::string>>(ctx, "slot_prefixes");
  return FindRule(GetAttr<std::string>(ctx, "rule"), &attrs->rule);
}

// The inputs for one table.
struct TableStep {
  Span<const int64_t> keys;     // [n] distinct
  Span<const int64_t> handles;  // [n] of the lookup, or empty
  const char* grads = nullptr;  // [n, dim] of the table's value type
  Span<const double> hyperparameters;
};

// `layouts`: of the tables.
inline Status ReadTableSteps(tensorflow::OpKernelContext* ctx, const ApplyAttrs& attrs,
                             const std::vector<RowLayout>& layouts, std::vector<TableStep>* steps) {
  tensorflow::OpInputList keys, handles, grads, hyperparameters;
  FE_RETURN_IF_ERROR(InputList(ctx, "keys", &keys));
  FE_RETURN_IF_ERROR(InputList(ctx, "handles", &handles));
  FE_RETURN_IF_ERROR(InputList(ctx, "grads", &grads));
  FE_RETURN_IF_ERROR(InputList(ctx, "hyperparameters", &hyperparameters));
  const int num_tables = static_cast<int>(layouts.size());
  if (grads.size() != num_tables || attrs.slot_prefixes.size() != layouts.size()) {
    return InvalidArgument("grads and slot_prefixes must have an entry for each of the ",
                           num_tables, " tables, got ", grads.size(), " and ",
                           attrs.slot_prefixes.size());
  }
  for (int t = 0; t < num_tables; ++t) {
    TableStep step;
    FE_RETURN_IF_ERROR(CheckVector("hyperparameters", hyperparameters[t]));
    FE_RETURN_IF_ERROR(CheckVector("keys", keys[t]));
    FE_RETURN_IF_ERROR(CheckVector("handles", handles[t]));
    step.keys = InputSpan<int64_t>(keys[t]);
    step.handles = InputSpan<int64_t>(handles[t]);
    step.grads = grads[t].tensor_data().data();
    step.hyperparameters = InputSpan<double>(hyperparameters[t]);
    FE_RETURN_IF_ERROR(
        CheckValues("grads", grads[t], step.keys.size, layouts[static_cast<size_t>(t)]));
    steps->push_back(step);
  }
  return Status();
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_APPLY_KERNEL_H_
