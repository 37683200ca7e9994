// Fingerprint64 of FarmHash, which stock TensorFlow hashes features by: a stable function, whose
// values are in checkpoints. Written from its definition, farmhashna::Hash64; FarmHash is Copyright
// (c) 2014 Google, Inc., MIT license (docs/decisions/033-column-keys.md).

#ifndef FUSED_EMBEDDING_CORE_INPUT_FINGERPRINT_H_
#define FUSED_EMBEDDING_CORE_INPUT_FINGERPRINT_H_

#include <cstdint>
#include <cstring>
#include <string_view>

#include "tf_ops/core/base/inline.h"

namespace fused_embedding {
namespace fingerprint {

constexpr uint64_t kK0 = 0xc3a5c85c97cb3127;
constexpr uint64_t kK1 = 0xb492b66fbe98f273;
constexpr uint64_t kK2 = 0x9ae16a3b2f90404f;

FE_INLINE uint64_t Load64(const char* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}
FE_INLINE uint32_t Load32(const char* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}
FE_INLINE uint64_t RotateRight(uint64_t value, int shift) {
  return (value >> shift) | (value << (64 - shift));
}
FE_INLINE uint64_t ShiftMix(uint64_t value) { return value ^ (value >> 47); }

FE_INLINE uint64_t Mix16(uint64_t u, uint64_t v, uint64_t mul) {
  const uint64_t a = ShiftMix((u ^ v) * mul);
  return ShiftMix((v ^ a) * mul) * mul;
}

// A text of 8 to 16 bytes: its first 8 and its last 8.
FE_INLINE uint64_t Of8To16(uint64_t first, uint64_t last, uint64_t size) {
  const uint64_t mul = kK2 + size * 2;
  const uint64_t a = first + kK2;
  const uint64_t c = RotateRight(last, 37) * mul + a;
  const uint64_t d = (RotateRight(a, 25) + last) * mul;
  return Mix16(c, d, mul);
}
// 4 to 7 bytes: the first 4 and the last 4.
FE_INLINE uint64_t Of4To7(uint64_t first, uint64_t last, uint64_t size) {
  return Mix16(size + (first << 3), last, kK2 + size * 2);
}
// 1 to 3 bytes.
FE_INLINE uint64_t Of1To3(uint64_t first, uint64_t middle, uint64_t last, uint64_t size) {
  const uint64_t y = first + (middle << 8);
  const uint64_t z = size + (last << 2);
  return ShiftMix(y * kK2 ^ z * kK0) * kK2;
}

// The digits of a number < 1e8 as 8 values, the first in the lowest byte. Each step divides by a
// power of ten, and puts the remainders behind the quotients: x - q * d, shifted, plus q.
FE_INLINE uint64_t Digits(uint64_t number) {
  const uint64_t high = (number * 3518437209) >> 45;  // number / 10000; vectors have no division
  const uint64_t fours = (number << 32) - high * ((uint64_t{10000} << 32) - 1);
  const uint64_t hundreds = ((fours * 10486) >> 20) & 0x0000007f0000007f;  // fours / 100
  const uint64_t twos = (fours << 16) - hundreds * ((100 << 16) - 1);
  const uint64_t tens = ((twos * 103) >> 10) & 0x000f000f000f000f;  // twos / 10
  return (twos << 8) - tens * ((10 << 8) - 1);
}
constexpr uint64_t kZeros = 0x3030303030303030;  // "00000000"
constexpr uint64_t kMaxSmall = 99999999;

// The fingerprint of the decimal text of a number < 10^kMaxDigits, without branches, so that a loop
// over it becomes vectors: the fingerprints of all sizes are computed.
template <int kMaxDigits>
FE_INLINE uint64_t OfSmallWithoutBranches(uint64_t number) {
  static_assert(kMaxDigits == 7 || kMaxDigits == 8);
  uint64_t size = uint64_t{1} + uint64_t{number > 9} + uint64_t{number > 99} +
                  uint64_t{number > 999} + uint64_t{number > 9999} + uint64_t{number > 99999} +
                  uint64_t{number > 999999};
  if (kMaxDigits == 8) size += uint64_t{number > 9999999};
  const uint64_t padded = Digits(number) + kZeros;  // with zeros in front
  const uint64_t text = padded >> (64 - 8 * size);
  const uint64_t last = padded >> 56;
  const uint64_t middle = number > 99 ? (padded >> 48) & 0xff : last;
  const uint64_t of1 = Of1To3(text & 0xff, middle, last, size);
  const uint64_t of4 = Of4To7(text & 0xffffffff, padded >> 32, size);
  const uint64_t of7 = number > 999 ? of4 : of1;
  if (kMaxDigits == 7) return of7;
  return number > 9999999 ? Of8To16(padded, padded, 8) : of7;
}

uint64_t OfMoreThan16(const char* text, uint64_t size);
uint64_t OfDecimalText(int64_t number);

}  // namespace fingerprint

// Of any bytes.
FE_INLINE uint64_t Fingerprint64(std::string_view text) {
  const char* bytes = text.data();
  const uint64_t size = text.size();
  if (size > 16) return fingerprint::OfMoreThan16(bytes, size);
  if (size >= 8) {
    return fingerprint::Of8To16(fingerprint::Load64(bytes), fingerprint::Load64(bytes + size - 8),
                                size);
  }
  if (size >= 4) {
    return fingerprint::Of4To7(fingerprint::Load32(bytes), fingerprint::Load32(bytes + size - 4),
                               size);
  }
  if (size == 0) return fingerprint::kK2;
  const auto byte = [&](uint64_t i) { return uint64_t{static_cast<unsigned char>(bytes[i])}; };
  return fingerprint::Of1To3(byte(0), byte(size >> 1), byte(size - 1), size);
}

// Of the decimal text of a number, as tf.as_string writes it.
FE_INLINE uint64_t Fingerprint64(int64_t number) {
  if (static_cast<uint64_t>(number) > fingerprint::kMaxSmall) {
    return fingerprint::OfDecimalText(number);
  }
  const uint64_t digits = fingerprint::Digits(static_cast<uint64_t>(number));
  const int num_zeros = number == 0 ? 7 : __builtin_ctzll(digits) >> 3;  // in front
  const uint64_t size = static_cast<uint64_t>(8 - num_zeros);
  const uint64_t text = (digits + fingerprint::kZeros) >> (8 * num_zeros);
  if (size == 8) return fingerprint::Of8To16(text, text, size);
  if (size >= 4) return fingerprint::Of4To7(text & 0xffffffff, text >> (8 * (size - 4)), size);
  return fingerprint::Of1To3(text & 0xff, (text >> (8 * (size >> 1))) & 0xff,
                             text >> (8 * (size - 1)), size);
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_FINGERPRINT_H_
