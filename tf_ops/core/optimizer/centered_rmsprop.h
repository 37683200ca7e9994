// rms = decay rms + (1 - decay) g^2
// mg = decay mg + (1 - decay) g
// momentum = momentum_rate momentum + learning_rate g / sqrt(rms + epsilon - mg^2)
// value -= momentum
//
// Source: ResourceSparseApplyCenteredRMSProp of TensorFlow, tf.compat.v1.train.RMSPropOptimizer
// with centered.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_CENTERED_RMSPROP_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_CENTERED_RMSPROP_H_

#include <array>
#include <cmath>
#include <cstdint>

#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

template <typename C>
class CenteredRmsProp {
 public:
  static constexpr const char* kName = "centered_rmsprop";
  static constexpr std::array kHyperparameters = {"learning_rate", "decay", "momentum", "epsilon"};
  static constexpr std::array<RuleSlot, 3> kSlots = {
      {{"rms", SlotWidth::kDim, 1}, {"mg"}, {"momentum"}}};

  explicit CenteredRmsProp(const double* h)
      : learning_rate_(static_cast<C>(h[0])),
        decay_(static_cast<C>(h[1])),
        momentum_rate_(static_cast<C>(h[2])),
        epsilon_(static_cast<C>(h[3])) {}

  template <typename T>
  FE_INLINE void Update(T* __restrict value, const T* __restrict grad, int64_t dim,
                        C* __restrict rms, C* __restrict mg, C* __restrict momentum) const {
    for (int64_t d = 0; d < dim; ++d) {
      const C g = Load(grad[d]);
      rms[d] = rms[d] * decay_ + g * g * (1 - decay_);
      mg[d] = mg[d] * decay_ + g * (1 - decay_);
      const C variance = rms[d] + epsilon_ - mg[d] * mg[d];
      momentum[d] = momentum[d] * momentum_rate_ + 1 / std::sqrt(variance) * learning_rate_ * g;
      Store(Load(value[d]) - momentum[d], &value[d]);
    }
  }

 private:
  C learning_rate_, decay_, momentum_rate_, epsilon_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_CENTERED_RMSPROP_H_
