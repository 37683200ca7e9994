#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_RULE_INFO_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_RULE_INFO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

// A rule of rules.h, as the outside knows it.
struct RuleInfo {
  std::string name;                          // "adagrad"
  std::vector<std::string> hyperparameters;  // in the order of the numbers
  // Slots of a row, without the prefix of the optimizer: {"accumulator", dim, initial}. The initial
  // value may come from a hyperparameter ("initial_accumulator_value").
  std::vector<Slot> Slots(int64_t dim, Span<const double> hyperparameters) const;
  int64_t num_slots = 0;
  bool works_value_by_value = true;  // no slot has one number a row
  int64_t index = -1;
};

// InvalidArgument, naming those that exist, for a rule that does not.
Status FindRule(const std::string& name, RuleInfo* info);

// InvalidArgument, naming those that the rule takes, for another number of them.
Status CheckHyperparameters(const RuleInfo& rule, Span<const double> hyperparameters);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_RULE_INFO_H_
