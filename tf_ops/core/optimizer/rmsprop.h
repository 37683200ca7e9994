// rms = decay rms + (1 - decay) g^2
// momentum = momentum_rate momentum + learning_rate g / sqrt(rms + epsilon)
// value -= momentum
//
// Source: ResourceSparseApplyRMSProp of TensorFlow, tf.compat.v1.train.RMSPropOptimizer.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_RMSPROP_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_RMSPROP_H_

#include <array>
#include <cmath>
#include <cstdint>

#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

template <typename C>
class RmsProp {
 public:
  static constexpr const char* kName = "rmsprop";
  static constexpr std::array kHyperparameters = {"learning_rate", "decay", "momentum", "epsilon"};
  static constexpr std::array<RuleSlot, 2> kSlots = {{{"rms", SlotWidth::kDim, 1}, {"momentum"}}};

  explicit RmsProp(const double* h)
      : learning_rate_(static_cast<C>(h[0])),
        decay_(static_cast<C>(h[1])),
        momentum_rate_(static_cast<C>(h[2])),
        epsilon_(static_cast<C>(h[3])) {}

  template <typename T>
  FE_INLINE void Update(T* __restrict value, const T* __restrict grad, int64_t dim,
                        C* __restrict rms, C* __restrict momentum) const {
    for (int64_t d = 0; d < dim; ++d) {
      const C g = Load(grad[d]);
      rms[d] = rms[d] * decay_ + g * g * (1 - decay_);
      momentum[d] =
          momentum[d] * momentum_rate_ + 1 / std::sqrt(rms[d] + epsilon_) * learning_rate_ * g;
      Store(Load(value[d]) - momentum[d], &value[d]);
    }
  }

 private:
  C learning_rate_, decay_, momentum_rate_, epsilon_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_RMSPROP_H_
