// value -= learning_rate g
//
// Source: TensorFlow's ScatterAdd of -learning_rate g, tf.compat.v1.train.GradientDescentOptimizer.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_SGD_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_SGD_H_

#include <array>
#include <cstdint>

#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

template <typename C>
class Sgd {
 public:
  static constexpr const char* kName = "sgd";
  static constexpr std::array kHyperparameters = {"learning_rate"};
  static constexpr std::array<RuleSlot, 0> kSlots = {};

  explicit Sgd(const double* h) : learning_rate_(static_cast<C>(h[0])) {}

  template <typename T>
  FE_INLINE void Update(T* __restrict value, const T* __restrict grad, int64_t dim) const {
    for (int64_t d = 0; d < dim; ++d) {
      Store(Load(value[d]) - learning_rate_ * Load(grad[d]), &value[d]);
    }
  }

 private:
  C learning_rate_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_SGD_H_
