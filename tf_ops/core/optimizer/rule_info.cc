#include "tf_ops/core/optimizer/rule_info.h"

#include <iterator>

#include "tf_ops/core/optimizer/rules.h"

namespace fused_embedding {
namespace {

struct RuleDescription {
  const char* name;
  Span<const char* const> hyperparameters;
  Span<const RuleSlot> slots;
  bool works_value_by_value;
};

// Names and slots do not depend on the type; float stands for all.
template <typename Rule>
RuleDescription Describe() {
  static_assert(Rule::kSlots.size() <= kMaxSlots);
  return {Rule::kName,
          {Rule::kHyperparameters.data(), static_cast<int64_t>(Rule::kHyperparameters.size())},
          {Rule::kSlots.data(), static_cast<int64_t>(Rule::kSlots.size())},
          WorksValueByValue<Rule>()};
}

Span<const RuleDescription> Rules() {
#define FE_DESCRIBE(Rule) Describe<Rule<float>>(),
  static const RuleDescription kRules[] = {FE_FOR_EACH_RULE(FE_DESCRIBE)};
#undef FE_DESCRIBE
  return {kRules, static_cast<int64_t>(std::size(kRules))};
}

template <typename Strings>
std::string Join(const Strings& strings) {
  std::string joined;
  for (const auto& string : strings) {
    if (!joined.empty()) joined += ", ";
    joined += string;
  }
  return joined;
}

}  // namespace

std::vector<Slot> RuleInfo::Slots(int64_t dim, Span<const double> values) const {
  const RuleDescription& rule = Rules()[index];
  std::vector<Slot> slots;
  for (const RuleSlot& slot : rule.slots) {
    double initial = slot.initial;
    for (int64_t i = 0; i < rule.hyperparameters.size && slot.initial_hyperparameter != nullptr;
         ++i) {
      if (hyperparameters[static_cast<size_t>(i)] == slot.initial_hyperparameter)
        initial = values[i];
    }
    slots.push_back({slot.name, slot.width == SlotWidth::kDim ? dim : 1, initial});
  }
  return slots;
}

Status FindRule(const std::string& name, RuleInfo* info) {
  const Span<const RuleDescription> rules = Rules();
  std::vector<std::string> names;
  for (int64_t i = 0; i < rules.size; ++i) {
    names.push_back(rules[i].name);
    if (name != rules[i].name) continue;
    info->name = name;
    info->hyperparameters.assign(rules[i].hyperparameters.begin(), rules[i].hyperparameters.end());
    info->num_slots = rules[i].slots.size;
    info->works_value_by_value = rules[i].works_value_by_value;
    info->index = i;
    return Status();
  }
  return InvalidArgument("rule must be one of ", Join(names), ", got ", name);
}

Status CheckHyperparameters(const RuleInfo& rule, Span<const double> hyperparameters) {
  const int64_t num_required = static_cast<int64_t>(rule.hyperparameters.size());
  if (hyperparameters.size == num_required) return Status();
  return InvalidArgument("rule ", rule.name, " takes ", num_required, " hyperparameters, but got ",
                         hyperparameters.size,
                         "; give, in this order: ", Join(rule.hyperparameters));
}

}  // namespace fused_embedding
