// Adam's formula (adam.h) with beta1_power and beta2_power of this table's own, which its optimizer
// multiplies by beta1 and beta2 after each update of the table. With apply_sparse_rmsprop instead
//
// v = beta2 v + (1 - beta2) g^2
// m = beta1 m + learning_rate g / sqrt(v + epsilon)
// value -= m
//
// and the powers are neither used nor changed.
//
// Source: KvResourceSparseApplyAdamAsync of DeepRec, its tf.train.AdamAsyncOptimizer.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_ADAM_ASYNC_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_ADAM_ASYNC_H_

#include <array>
#include <cstdint>

#include "tf_ops/core/optimizer/adam.h"
#include "tf_ops/core/optimizer/rmsprop.h"
#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

template <typename C>
class AdamAsync {
 public:
  static constexpr const char* kName = "adam_async";
  static constexpr std::array kHyperparameters = {
      "learning_rate",       "beta1", "beta2", "epsilon", "beta1_power", "beta2_power",
      "apply_sparse_rmsprop"};
  static constexpr std::array<RuleSlot, 2> kSlots = {{{"m"}, {"v"}}};

  explicit AdamAsync(const double* h)
      : adam_(h), rmsprop_(RmsPropHyperparameters(h).data()), is_rmsprop_(h[6] != 0) {}

  template <typename T>
  FE_INLINE void Update(T* __restrict value, const T* __restrict grad, int64_t dim, C* __restrict m,
                        C* __restrict v) const {
    if (is_rmsprop_) {
      rmsprop_.Update(value, grad, dim, v, m);
    } else {
      adam_.Update(value, grad, dim, m, v);
    }
  }

 private:
  static std::array<double, 4> RmsPropHyperparameters(const double* h) {
    return {h[0], h[2], h[1], h[3]};
  }

  Adam<C> adam_;
  RmsProp<C> rmsprop_;
  bool is_rmsprop_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_ADAM_ASYNC_H_
