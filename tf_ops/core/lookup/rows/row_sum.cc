#include "tf_ops/core/lookup/rows/row_sum.h"

namespace fused_embedding {

template <typename C>
void AddToParts(const C* part, int64_t num_values, bool is_first, double* parts) {
  WithSimd([&]() FE_INLINE_LAMBDA {
    if (is_first) {
      for (int64_t i = 0; i < num_values; ++i) parts[i] = part[i];
    } else {
      for (int64_t i = 0; i < num_values; ++i) parts[i] += part[i];
    }
  });
}

template <typename C>
void AddPartsTo(C* part, int64_t num_values, const double* parts) {
  WithSimd([&]() FE_INLINE_LAMBDA {
    for (int64_t i = 0; i < num_values; ++i) part[i] = static_cast<C>(parts[i] + part[i]);
  });
}

#define FE_INSTANTIATE(C)                                     \
  template void AddToParts(const C*, int64_t, bool, double*); \
  template void AddPartsTo(C*, int64_t, const double*);
FE_INSTANTIATE(float)
FE_INSTANTIATE(double)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
