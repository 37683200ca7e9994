// A rule on one row, of arrays or of a table.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_UPDATE_ROW_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_UPDATE_ROW_H_

#include <cstdint>
#include <type_traits>

#include "tf_ops/core/base/vectors.h"
#include "tf_ops/core/optimizer/rule.h"

namespace fused_embedding {

// A vector of values, gradients and slots: converted, computed on as C, and rounded once.
template <int64_t kVectorBytes, int64_t kLanes, typename Rule, typename T, typename... Slot>
FE_INLINE void UpdateVector(const Rule& rule, T* value, const T* grad, Slot*... slots) {
  using C = ComputeType<T>;
  struct Values {
    C data[kLanes];
  };
  Values values, grads;
  LoadValues<kVectorBytes, kLanes>(value, values.data);
  LoadValues<kVectorBytes, kLanes>(grad, grads.data);
  const auto update = [&](auto... wide) FE_INLINE_LAMBDA {
    (LoadValues<kVectorBytes, kLanes>(slots, wide.data), ...);
    rule.Update(values.data, grads.data, kLanes, wide.data...);
    (StoreValues<kVectorBytes, kLanes>(wide.data, slots), ...);
  };
  update(((void)slots, Values())...);
  StoreValues<kVectorBytes, kLanes>(values.data, value);
}

// The compiler vectorises a rule's loop, but not one that converts values, too.
template <int64_t kVectorBytes, typename Rule, typename T, typename... Slot>
FE_INLINE void UpdateRow(const Rule& rule, T* value, const T* grad, int64_t dim, Slot*... slots) {
  using C = ComputeType<T>;
  if constexpr (std::is_same_v<T, C> || !WorksValueByValue<Rule>()) {
    rule.Update(value, grad, dim, slots...);
  } else {
    ForEachVector<kVectorBytes / int64_t{sizeof(C)}>(
        0, dim, [&](auto lanes, int64_t first) FE_INLINE_LAMBDA {
          UpdateVector<kVectorBytes, lanes()>(rule, value + first, grad + first, slots + first...);
        });
  }
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_UPDATE_ROW_H_
