// Functions of <cmath> whose symbols in glibc are newer than the oldest system that the library
// loads on. They are plain arithmetic: the same bits on every machine, and loops over them
// vectorise.

#ifndef FUSED_EMBEDDING_CORE_BASE_MATH_H_
#define FUSED_EMBEDDING_CORE_BASE_MATH_H_

#include <cstdint>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/simd.h"

namespace fused_embedding {

// Natural logarithm of a normal positive number, within 2 ulp.
//
// x = 2^k m with m in [sqrt(1/2), sqrt(2)), and log m = 2 atanh(s), s = (m - 1) / (m + 1). The
// series of atanh ends where its terms fall below half an ulp: |s| < 0.1716.
FE_INLINE double Log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdULL;  // bits of sqrt(1/2)
  constexpr uint64_t kBias = uint64_t{1023} << 52;
  constexpr double kLn2High = 0x1.62e42fefap-1, kLn2Low = 0x1.cf79abc9e3b3ap-40;
  const uint64_t bits = BitCast<uint64_t>(x);
  const uint64_t biased_k = (bits - kSqrtHalf + kBias) >> 52;
  const double m = BitCast<double>(bits - (biased_k << 52) + kBias);
  // An integer below 2^52 becomes a double by its bits: no instruction converts it before AVX-512.
  const double k = BitCast<double>(biased_k | (uint64_t{1023 + 52} << 52)) - (0x1p52 + 1023.0);
  const double s = (m - 1.0) / (m + 1.0);
  const double t = s * s;
  double series = 1.0 / 21;
  series = series * t + 1.0 / 19;
  series = series * t + 1.0 / 17;
  series = series * t + 1.0 / 15;
  series = series * t + 1.0 / 13;
  series = series * t + 1.0 / 11;
  series = series * t + 1.0 / 9;
  series = series * t + 1.0 / 7;
  series = series * t + 1.0 / 5;
  series = series * t + 1.0 / 3;
  const double log_m = 2.0 * s + (2.0 * s) * (t * series);
  return k * kLn2High + (log_m + k * kLn2Low);
}

// e^x within 2 ulp; 0 below the smallest normal number, as the flushing threads of TensorFlow have
// it.
//
// x = n log 2 + r with |r| <= log(2) / 2. The series of e^r ends where its terms fall below half an
// ulp; 2^n is put together from its bits.
FE_INLINE double Exp(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fefap-1, kLn2Low = 0x1.cf79abc9e3b3ap-40;
  constexpr double kRound = 0x1.8p52;  // added to a number, leaves the nearest integer in low bits
  constexpr double kMin = -708.0, kMax = 709.0;
  const double clamped = x < kMin ? kMin : (x > kMax ? kMax : x);
  const double shifted = clamped * kLog2E + kRound;
  const double n = shifted - kRound;
  const double r = (clamped - n * kLn2High) - n * kLn2Low;
  double series = 1.0 / 6227020800;  // 1 / 13!
  series = series * r + 1.0 / 479001600;
  series = series * r + 1.0 / 39916800;
  series = series * r + 1.0 / 3628800;
  series = series * r + 1.0 / 362880;
  series = series * r + 1.0 / 40320;
  series = series * r + 1.0 / 5040;
  series = series * r + 1.0 / 720;
  series = series * r + 1.0 / 120;
  series = series * r + 1.0 / 24;
  series = series * r + 1.0 / 6;
  series = series * r + 0.5;
  const double exp_r = 1.0 + (r + r * r * series);
  // 2^n: the low bits of `shifted` are n as an integer.
  const double power = BitCast<double>((BitCast<uint64_t>(shifted) + 1023) << 52);
  const double result = exp_r * power;
  const double low = x < kMin ? 0.0 : result;
  const double high = x > kMax ? BitCast<double>(uint64_t{0x7ff} << 52) : low;
  return x == x ? high : x;
}

// x^y for x >= 0, as std::pow; the error is |y log x| ulp. NaN for x < 0.
FE_INLINE double Pow(double x, double y) {
  constexpr double kMinNormal = 0x1p-1022;
  const double infinity = BitCast<double>(uint64_t{0x7ff} << 52);
  const double power = Exp(y * Log(x));
  // Where Log does not reach: 0 and what is as good as 0, infinity, NaN.
  const double at_zero = y > 0 ? 0.0 : infinity;
  const double at_infinity = y > 0 ? infinity : 0.0;
  double result = x < kMinNormal ? at_zero : power;
  result = x == infinity ? at_infinity : result;
  result = x >= 0 ? result : BitCast<double>(uint64_t{0x7ff8} << 48);
  return y == 0 ? 1.0 : result;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_MATH_H_
