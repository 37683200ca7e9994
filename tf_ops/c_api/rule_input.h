// An optimizer's rule as the C functions get it.

#ifndef FUSED_EMBEDDING_C_API_RULE_INPUT_H_
#define FUSED_EMBEDDING_C_API_RULE_INPUT_H_

#include <vector>

#include "tf_ops/c_api/arrays.h"
#include "tf_ops/core/optimizer/rule_info.h"

namespace fused_embedding::c_api {

// A rule, and the hyperparameters that a run refers to.
struct RuleInput {
  RuleInfo rule;
  std::vector<double> hyperparameters;

  Span<const double> numbers() const { return AsSpan(hyperparameters); }
};

inline Status ToRule(const char* rule, const FeArray& hyperparameters, RuleInput* input) {
  Span<const double> numbers;
  FE_RETURN_IF_ERROR(FindRule(rule == nullptr ? "" : rule, &input->rule));
  FE_RETURN_IF_ERROR(ToSpan("hyperparameters", hyperparameters, &numbers));
  FE_RETURN_IF_ERROR(CheckHyperparameters(input->rule, numbers));
  input->hyperparameters.assign(numbers.begin(), numbers.end());
  return Status();
}

}  // namespace fused_embedding::c_api

#endif  // FUSED_EMBEDDING_C_API_RULE_INPUT_H_
