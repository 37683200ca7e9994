// Lazy Adam, on the rows of the step alone:
//
// m = beta1 m + (1 - beta1) g
// v = beta2 v + (1 - beta2) g^2
// value -= learning_rate sqrt(1 - beta2_power) / (1 - beta1_power) m / (sqrt(v) + epsilon)
//
// beta1_power and beta2_power are beta1 and beta2 to the number of the step, which is the
// optimizer's.
//
// Source: the sparse update of tf.compat.v1.train.AdamOptimizer. That one also decays m and v of
// every other row and moves those rows by their m: here they rest.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_ADAM_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_ADAM_H_

#include <array>
#include <cmath>
#include <cstdint>

#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

// What Adam and AdamW share.
template <typename C>
class AdamMoments {
 public:
  // h: learning_rate, beta1, beta2, epsilon, beta1_power, beta2_power
  explicit AdamMoments(const double* h)
      : beta1_(static_cast<C>(h[1])),
        beta2_(static_cast<C>(h[2])),
        epsilon_(static_cast<C>(h[3])),
        learning_rate_(static_cast<C>(h[0]) * std::sqrt(1 - static_cast<C>(h[5])) /
                       (1 - static_cast<C>(h[4]))) {}

  // Updates the moments by a gradient; returns what is subtracted from the value.
  FE_INLINE C Step(C g, C* m, C* v) const {
    *m = *m * beta1_ + g * (1 - beta1_);
    *v = *v * beta2_ + g * g * (1 - beta2_);
    return learning_rate_ * *m / (std::sqrt(*v) + epsilon_);
  }

 private:
  C beta1_, beta2_, epsilon_;
  C learning_rate_;  // corrected for the bias of m and v
};

template <typename C>
class Adam {
 public:
  static constexpr const char* kName = "adam";
  static constexpr std::array kHyperparameters = {"learning_rate", "beta1",       "beta2",
                                                  "epsilon",       "beta1_power", "beta2_power"};
  static constexpr std::array<RuleSlot, 2> kSlots = {{{"m"}, {"v"}}};

  explicit Adam(const double* h) : moments_(h) {}

  template <typename T>
  FE_INLINE void Update(T* __restrict value, const T* __restrict grad, int64_t dim, C* __restrict m,
                        C* __restrict v) const {
    for (int64_t d = 0; d < dim; ++d) {
      Store(Load(value[d]) - moments_.Step(Load(grad[d]), &m[d], &v[d]), &value[d]);
    }
  }

 private:
  AdamMoments<C> moments_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_ADAM_H_
