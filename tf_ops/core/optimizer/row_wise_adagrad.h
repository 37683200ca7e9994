// accumulator += mean over the row of g^2        (one number a row)
// value -= learning_rate / (sqrt(accumulator) + epsilon) g
//
// Source: the exact row-wise Adagrad of FBGEMM, RowWiseAdagrad of TorchRec.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_ROW_WISE_ADAGRAD_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_ROW_WISE_ADAGRAD_H_

#include <array>
#include <cmath>
#include <cstdint>

#include "tf_ops/core/lookup/rows/row_math.h"
#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

template <typename C>
class RowWiseAdagrad {
 public:
  static constexpr const char* kName = "row_wise_adagrad";
  static constexpr std::array kHyperparameters = {"learning_rate", "epsilon",
                                                  "initial_accumulator_value"};
  static constexpr std::array<RuleSlot, 1> kSlots = {
      {{"accumulator", SlotWidth::kOne, 0, "initial_accumulator_value"}}};

  explicit RowWiseAdagrad(const double* h)
      : learning_rate_(static_cast<C>(h[0])), epsilon_(static_cast<C>(h[1])) {}

  template <typename T>
  FE_INLINE void Update(T* __restrict value, const T* __restrict grad, int64_t dim,
                        C* __restrict accumulator) const {
    UpdateValues(value, grad, dim, RowScale(Dot<C>(grad, grad, dim), dim, accumulator));
  }
  FE_INLINE C RowScale(C square, int64_t dim, C* accumulator) const {
    *accumulator += square / static_cast<C>(dim);
    return learning_rate_ / (std::sqrt(*accumulator) + epsilon_);
  }
  template <typename T>
  FE_INLINE void UpdateValues(T* __restrict value, const T* __restrict grad, int64_t width,
                              C scale) const {
    for (int64_t d = 0; d < width; ++d) Store(Load(value[d]) - scale * Load(grad[d]), &value[d]);
  }

 private:
  C learning_rate_, epsilon_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_ROW_WISE_ADAGRAD_H_
