// new_accum = accum + g^2
// linear += g + 2 l2_shrinkage value - (new_accum^-p - accum^-p) / learning_rate value
// value = (clip(linear, -l1, l1) - linear) / (new_accum^-p / learning_rate + 2 l2)
// accum = new_accum                                  where p = learning_rate_power
//
// The `beta` of tf.compat.v1.train.FtrlOptimizer is a part of l2: l2 + beta / (2 learning_rate).
//
// Source: ResourceSparseApplyFtrl and ResourceSparseApplyFtrlV2 of TensorFlow,
// tf.compat.v1.train.FtrlOptimizer.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_FTRL_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_FTRL_H_

#include <array>
#include <cmath>
#include <cstdint>

#include "tf_ops/core/base/math.h"
#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

template <typename C>
class Ftrl {
 public:
  static constexpr const char* kName = "ftrl";
  static constexpr std::array kHyperparameters = {
      "learning_rate", "learning_rate_power",      "l1", "l2",
      "l2_shrinkage",  "initial_accumulator_value"};
  static constexpr std::array<RuleSlot, 2> kSlots = {
      {{"accum", SlotWidth::kDim, 0, "initial_accumulator_value"}, {"linear"}}};

  explicit Ftrl(const double* h)
      : learning_rate_(static_cast<C>(h[0])),
        power_(-static_cast<C>(h[1])),
        l1_(static_cast<C>(h[2])),
        l2_(static_cast<C>(h[3])),
        l2_shrinkage_(static_cast<C>(h[4])) {}

  template <typename T>
  FE_INLINE void Update(T* __restrict value, const T* __restrict grad, int64_t dim,
                        C* __restrict accum, C* __restrict linear) const {
    if (power_ == C(0.5)) {
      const auto root = [](C x) FE_INLINE_LAMBDA { return std::sqrt(x); };
      UpdateWith(root, value, grad, dim, accum, linear);
    } else {
      const auto power = [p = double{power_}](C x)
                             FE_INLINE_LAMBDA { return static_cast<C>(Pow(double{x}, p)); };
      UpdateWith(power, value, grad, dim, accum, linear);
    }
  }

 private:
  template <typename Power, typename T>
  FE_INLINE void UpdateWith(const Power& power, T* __restrict value, const T* __restrict grad,
                            int64_t dim, C* __restrict accum, C* __restrict linear) const {
    for (int64_t d = 0; d < dim; ++d) {
      const C w = Load(value[d]);
      const C g = Load(grad[d]);
      const C new_accum = accum[d] + g * g;
      const C new_power = power(new_accum);
      const C sigma = (new_power - power(accum[d])) / learning_rate_;
      linear[d] += g + 2 * l2_shrinkage_ * w - sigma * w;
      const C quadratic = new_power / learning_rate_ + 2 * l2_;
      Store((Clip(linear[d]) - linear[d]) / quadratic, &value[d]);
      accum[d] = new_accum;
    }
  }

  FE_INLINE C Clip(C x) const {
    const C low = x < -l1_ ? -l1_ : x;
    return low > l1_ ? l1_ : low;
  }

  C learning_rate_, power_, l1_, l2_, l2_shrinkage_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_FTRL_H_
