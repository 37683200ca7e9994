#ifndef FUSED_EMBEDDING_CORE_INPUT_MODULUS_H_
#define FUSED_EMBEDDING_CORE_INPUT_MODULUS_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/base/inline.h"

namespace fused_embedding {

// The remainders by one divisor, in [1, 2^63), as `%` gives them, without a division for each.
//
// The quotient is estimated by the upper half of value * reciprocal, where reciprocal is 2^64 /
// divisor, rounded down. The estimate is the quotient, or 1 less. So the rest is below 2 * divisor,
// and one subtraction is enough.
class Modulus {
 public:
  explicit Modulus(int64_t divisor)
      : divisor_(static_cast<uint64_t>(divisor)), reciprocal_(~uint64_t{0} / divisor_) {}

  FE_INLINE uint64_t Of(uint64_t value) const {
    __extension__ using Wide = unsigned __int128;
    return Rest(value, static_cast<uint64_t>((Wide{value} * reciprocal_) >> 64));
  }

  // The same by multiplications of 32 bits: a loop over it becomes vectors.
  FE_INLINE uint64_t OfInVectors(uint64_t value) const {
    constexpr uint64_t kLow = 0xffffffff;
    const uint64_t low = value & kLow, high = value >> 32;
    const uint64_t by_low = reciprocal_ & kLow, by_high = reciprocal_ >> 32;
    const uint64_t middle = high * by_low + ((low * by_low) >> 32);
    const uint64_t carry = (low * by_high + (middle & kLow)) >> 32;
    return Rest(value, high * by_high + (middle >> 32) + carry);
  }

 private:
  FE_INLINE uint64_t Rest(uint64_t value, uint64_t quotient) const {
    const uint64_t rest = value - quotient * divisor_;
    return std::min(rest, rest - divisor_);  // the difference wraps around if rest < divisor
  }

  uint64_t divisor_;
  uint64_t reciprocal_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_MODULUS_H_
