// where floor(global_step / accumulator_decay_step) > decay_power:
//   accumulator = max(accumulator_decay_rate accumulator, initial_accumulator_value)
//   decay_power += 1
// accumulator += g^2
// value -= learning_rate g / sqrt(accumulator)
//
// A row that was not updated for several periods decays once in each of its next updates, not
// several times at once. global_step is the number of the step being made, the first being 1.
//
// Source: KvResourceSparseApplyAdagradDecay of DeepRec, its tf.train.AdagradDecayOptimizer.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_ADAGRAD_DECAY_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_ADAGRAD_DECAY_H_

#include <array>
#include <cmath>
#include <cstdint>

#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

template <typename C>
class AdagradDecay {
 public:
  static constexpr const char* kName = "adagrad_decay";
  static constexpr std::array kHyperparameters = {
      "learning_rate", "global_step", "accumulator_decay_step", "accumulator_decay_rate",
      "initial_accumulator_value"};
  static constexpr std::array<RuleSlot, 2> kSlots = {
      {{"accumulator", SlotWidth::kDim, 0, "initial_accumulator_value"},
       {"accumulator_decay_power", SlotWidth::kOne}}};

  explicit AdagradDecay(const double* h)
      : learning_rate_(static_cast<C>(h[0])),
        num_periods_(static_cast<C>(std::floor(h[1] / h[2]))),
        decay_rate_(static_cast<C>(h[3])),
        baseline_(static_cast<C>(h[4])) {}

  template <typename T>
  FE_INLINE void Update(T* __restrict value, const T* __restrict grad, int64_t dim,
                        C* __restrict accumulator, C* __restrict decay_power) const {
    if (num_periods_ > *decay_power) {
      for (int64_t d = 0; d < dim; ++d) {
        const C decayed = accumulator[d] * decay_rate_;
        accumulator[d] = decayed < baseline_ ? baseline_ : decayed;
      }
      *decay_power += 1;
    }
    for (int64_t d = 0; d < dim; ++d) {
      const C g = Load(grad[d]);
      accumulator[d] += g * g;
      Store(Load(value[d]) - learning_rate_ * g * (1 / std::sqrt(accumulator[d])), &value[d]);
    }
  }

 private:
  C learning_rate_, num_periods_, decay_rate_, baseline_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_ADAGRAD_DECAY_H_
