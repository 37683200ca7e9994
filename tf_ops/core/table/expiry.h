#ifndef FUSED_EMBEDDING_CORE_TABLE_EXPIRY_H_
#define FUSED_EMBEDDING_CORE_TABLE_EXPIRY_H_

#include <cstdint>

#include "tf_ops/core/base/inline.h"

namespace fused_embedding {

// Which rows expire: those that were not used for long, and those with small values.
struct Expiry {
  int64_t step = -1;  // the current step; < 0: the table's own counter
  int64_t steps_to_live = 0;
  double l2_threshold = 0.0;

  FE_HOST_DEVICE bool IsOld(uint32_t version) const {
    return steps_to_live > 0 && step > int64_t{version} && step - int64_t{version} > steps_to_live;
  }
  FE_HOST_DEVICE bool needs_norms() const { return l2_threshold > 0.0; }
  // Of the values' squared L2 norm.
  FE_HOST_DEVICE bool IsSmall(double squared_norm) const {
    return needs_norms() && squared_norm < l2_threshold * l2_threshold;
  }
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_EXPIRY_H_
