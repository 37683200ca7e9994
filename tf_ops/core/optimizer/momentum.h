// momentum = momentum_rate momentum + g
// value -= learning_rate momentum,                            or with use_nesterov
// value -= learning_rate g + momentum_rate learning_rate momentum
//
// Source: ResourceSparseApplyMomentum of TensorFlow, tf.compat.v1.train.MomentumOptimizer.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_MOMENTUM_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_MOMENTUM_H_

#include <array>
#include <cstdint>

#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

template <typename C>
class Momentum {
 public:
  static constexpr const char* kName = "momentum";
  static constexpr std::array kHyperparameters = {"learning_rate", "momentum", "use_nesterov"};
  static constexpr std::array<RuleSlot, 1> kSlots = {{{"momentum"}}};

  explicit Momentum(const double* h)
      : learning_rate_(static_cast<C>(h[0])),
        momentum_rate_(static_cast<C>(h[1])),
        use_nesterov_(h[2] != 0) {}

  template <typename T>
  FE_INLINE void Update(T* __restrict value, const T* __restrict grad, int64_t dim,
                        C* __restrict momentum) const {
    if (use_nesterov_) {
      for (int64_t d = 0; d < dim; ++d) {
        const C g = Load(grad[d]);
        momentum[d] = momentum[d] * momentum_rate_ + g;
        const C step = g * learning_rate_ + momentum[d] * (momentum_rate_ * learning_rate_);
        Store(Load(value[d]) - step, &value[d]);
      }
    } else {
      for (int64_t d = 0; d < dim; ++d) {
        momentum[d] = momentum[d] * momentum_rate_ + Load(grad[d]);
        Store(Load(value[d]) - momentum[d] * learning_rate_, &value[d]);
      }
    }
  }

 private:
  C learning_rate_, momentum_rate_;
  bool use_nesterov_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_MOMENTUM_H_
