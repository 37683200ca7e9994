// What a rule is. `Rule<C>`, C being the ComputeType of the values, has
//
//   kName            "adagrad"
//   kHyperparameters names, in the order of the numbers that its constructor reads
//   kSlots           what it keeps beside a value, in the order of Update's last arguments
//   Rule(h)          the step: hyperparameters in C, as the stock kernels take them
//   Update           one row: values, gradient, dim, a pointer for each slot. FE_INLINE, a plain
//                    loop that vectorises; nothing overlaps. Where all slots are of SlotWidth::kDim
//                    it works value by value: any part of a row may be updated by itself.
//   RowScale, UpdateValues
//                    Update in two steps, of a rule that has but one number a row: what the sum of
//                    g^2 makes of that number, and then any part of the row.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_RULE_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_RULE_H_

#include <cstddef>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/simd.h"

namespace fused_embedding {

enum class SlotWidth {
  kDim,  // a number for each value
  kOne,  // a number for the row
};

constexpr size_t kMaxSlots = 4;  // of a rule

struct RuleSlot {
  const char* name = nullptr;
  SlotWidth width = SlotWidth::kDim;
  double initial = 0;
  const char* initial_hyperparameter = nullptr;  // whose value is the initial one instead
};

template <typename Rule>
constexpr bool WorksValueByValue() {
  for (const RuleSlot& slot : Rule::kSlots) {
    if (slot.width != SlotWidth::kDim) return false;
  }
  return true;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_RULE_H_
