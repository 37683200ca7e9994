// Lazy Adam (adam.h) with decoupled weight decay: beside Adam's step,
//
// value -= learning_rate weight_decay value        (the value before the step)
//
// Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, algorithm 2, with the
// learning rate as its schedule, as Keras and PyTorch have it. DeepRec's AdamW scales the decay by
// Adam's bias-corrected learning rate instead.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_ADAMW_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_ADAMW_H_

#include <array>
#include <cstdint>

#include "tf_ops/core/optimizer/adam.h"
#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

template <typename C>
class AdamW {
 public:
  static constexpr const char* kName = "adamw";
  static constexpr std::array kHyperparameters = {
      "learning_rate", "beta1", "beta2", "epsilon", "beta1_power", "beta2_power", "weight_decay"};
  static constexpr std::array<RuleSlot, 2> kSlots = {{{"m"}, {"v"}}};

  explicit AdamW(const double* h)
      : moments_(h), decay_(static_cast<C>(h[0]) * static_cast<C>(h[6])) {}

  template <typename T>
  FE_INLINE void Update(T* __restrict value, const T* __restrict grad, int64_t dim, C* __restrict m,
                        C* __restrict v) const {
    for (int64_t d = 0; d < dim; ++d) {
      const C old = Load(value[d]);
      Store(old - old * decay_ - moments_.Step(Load(grad[d]), &m[d], &v[d]), &value[d]);
    }
  }

 private:
  AdamMoments<C> moments_;
  C decay_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_ADAMW_H_
