// The arithmetic of first values. The CPU and GPUs share it, and neither may contract a product and
// a sum into one rounding: a key gets the same bits on both.

#ifndef FUSED_EMBEDDING_CORE_TABLE_FIRST_VALUE_H_
#define FUSED_EMBEDDING_CORE_TABLE_FIRST_VALUE_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/table/normal.h"

namespace fused_embedding {

constexpr int64_t kDebugModulus = 100000;
constexpr double kTwoSigmaMass = 0.9544997361036416;  // of a normal distribution

FE_INLINE int64_t FloorMod(int64_t a, int64_t b) {
  const int64_t remainder = a % b;
  return remainder < 0 ? remainder + b : remainder;
}

// The random bits of value d are SplitMix64's (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", 2014) with Mix64 as finaliser, started at a hash of (seed, key). They are
// fixed for ever: checkpoints keep the seed, not the values of rows to come.
constexpr uint64_t kGamma = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio

FE_INLINE uint64_t SeedState(uint64_t seed) { return Mix64(seed ^ kGamma); }
FE_INLINE uint64_t RowState(uint64_t seed_state, int64_t key) {
  return Mix64(seed_state + static_cast<uint64_t>(key));
}
// In [0, 1), a multiple of 2^-52.
FE_INLINE double RandomUnit(uint64_t row_state, int64_t d) {
  const uint64_t bits = Mix64(row_state + static_cast<uint64_t>(d + 1) * kGamma);
  return BitCast<double>((bits >> 12) | (uint64_t{1023} << 52)) - 1.0;
}

FE_INLINE double Clamped(double value, double low, double high) {
  const double raised = value < low ? low : value;
  return raised > high ? high : raised;
}

// Values that may be drawn: `low` and `high` are values of T, with no rounding past them.
struct ValueRange {
  double low;
  double high;
};

// The next T above (direction 1) or below (-1) `value`.
template <typename T>
double Neighbour(T value, int direction) {
  // Bits of a float, taken as sign and magnitude, are in the order of the values.
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  Bits bits = BitCast<Bits>(value);
  if (static_cast<Bits>(bits & ~kSign) == 0) {
    bits = direction > 0 ? Bits{1} : static_cast<Bits>(kSign | 1);
  } else {
    const bool grows = ((bits & kSign) == 0) == (direction > 0);
    bits = static_cast<Bits>(grows ? bits + 1 : bits - 1);
  }
  return double{Load(BitCast<T>(bits))};
}

template <typename T>
FE_INLINE T RoundTo(double value) {
  T rounded;
  Store(static_cast<ComputeType<T>>(value), &rounded);
  return rounded;
}

// The values of T in [a, b). Where there is none: the one nearest to a.
template <typename T>
ValueRange UniformRange(double a, double b) {
  const T low = RoundTo<T>(a);
  const T high = RoundTo<T>(b);
  ValueRange range;
  range.low = double{Load(low)} < a ? Neighbour<T>(low, 1) : double{Load(low)};
  range.high = double{Load(high)} < b ? double{Load(high)} : Neighbour<T>(high, -1);
  if (range.low > range.high) range.low = range.high = double{Load(low)};
  return range;
}

// The q, |q| < half_mass, whose quantile is the normal value of `unit`: that of probability 0.5 +
// q. The probabilities are symmetric and never 0 or 1: RandomUnit is taken half a step higher.
FE_INLINE double QuantileArgument(double unit, double half_mass) {
  return 2.0 * half_mass * ((unit + 0x1p-53) - 0.5);
}

// The quantile of q where |q| > kCentral.
FE_INLINE double OuterNormalQuantile(double q) {
  const double tail = TailNormalQuantile(0.5 - std::abs(q));
  return q < 0 ? -tail : tail;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_FIRST_VALUE_H_
