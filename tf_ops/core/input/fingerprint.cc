#include "tf_ops/core/input/fingerprint.h"

#include <charconv>
#include <utility>

namespace fused_embedding {
namespace fingerprint {
namespace {

using Pair = std::pair<uint64_t, uint64_t>;

uint64_t Of17To32(const char* text, uint64_t size) {
  const uint64_t mul = kK2 + size * 2;
  const uint64_t a = Load64(text) * kK1;
  const uint64_t b = Load64(text + 8);
  const uint64_t c = Load64(text + size - 8) * mul;
  const uint64_t d = Load64(text + size - 16) * kK2;
  return Mix16(RotateRight(a + b, 43) + RotateRight(c, 30) + d, a + RotateRight(b + kK2, 18) + c,
               mul);
}

uint64_t Of33To64(const char* text, uint64_t size) {
  const uint64_t mul = kK2 + size * 2;
  const uint64_t a = Load64(text) * kK2;
  const uint64_t b = Load64(text + 8);
  const uint64_t c = Load64(text + size - 8) * mul;
  const uint64_t d = Load64(text + size - 16) * kK2;
  const uint64_t y = RotateRight(a + b, 43) + RotateRight(c, 30) + d;
  const uint64_t z = Mix16(y, a + RotateRight(b + kK2, 18) + c, mul);
  const uint64_t e = Load64(text + 16) * mul;
  const uint64_t f = Load64(text + 24);
  const uint64_t g = (y + Load64(text + size - 32)) * mul;
  const uint64_t h = (z + Load64(text + size - 24)) * mul;
  return Mix16(RotateRight(e + f, 43) + RotateRight(g, 30) + h, e + RotateRight(f + a, 18) + g,
               mul);
}

// WeakHashLen32WithSeeds: of 32 bytes, and two words of state.
Pair Of32Bytes(const char* text, uint64_t a, uint64_t b) {
  a += Load64(text);
  b = RotateRight(b + a + Load64(text + 24), 21);
  const uint64_t c = a;
  a += Load64(text + 8) + Load64(text + 16);
  b += RotateRight(a, 44);
  return {a + Load64(text + 24), b + c};
}

// 56 bytes of state, through which blocks of 64 bytes go.
struct State {
  uint64_t x, y, z;
  Pair v, w;

  // `mul` and `nine` differ for the last block.
  void Add(const char* block, uint64_t mul, uint64_t nine) {
    x = RotateRight(x + y + v.first + Load64(block + 8), 37) * mul;
    y = RotateRight(y + v.second + Load64(block + 48), 42) * mul;
    x ^= w.second * nine;
    y += v.first * nine + Load64(block + 40);
    z = RotateRight(z + w.first, 33) * mul;
    v = Of32Bytes(block, v.second * mul, x + w.first);
    w = Of32Bytes(block + 32, z + w.second, y + Load64(block + 16));
    std::swap(z, x);
  }
};

uint64_t OfMoreThan64(const char* text, uint64_t size) {
  constexpr uint64_t kSeed = 81;
  State state{kSeed * kK2 + Load64(text), kSeed * kK1 + 113, 0, {0, 0}, {0, 0}};
  state.z = ShiftMix(state.y * kK2 + 113) * kK2;
  const uint64_t rest = (size - 1) & 63;  // the last block has rest + 1 new bytes
  const char* end = text + (size - 1 - rest);
  for (const char* block = text; block != end; block += 64) state.Add(block, kK1, 1);
  const uint64_t mul = kK1 + ((state.z & 0xff) << 1);
  state.w.first += rest;
  state.v.first += state.w.first;
  state.w.first += state.v.first;
  state.Add(end + rest - 63, mul, 9);
  return Mix16(Mix16(state.v.first, state.w.first, mul) + ShiftMix(state.y) * kK0 + state.z,
               Mix16(state.v.second, state.w.second, mul) + state.x, mul);
}

}  // namespace

uint64_t OfMoreThan16(const char* text, uint64_t size) {
  if (size <= 32) return Of17To32(text, size);
  if (size <= 64) return Of33To64(text, size);
  return OfMoreThan64(text, size);
}

uint64_t OfDecimalText(int64_t number) {
  char text[20];  // "-9223372036854775808"
  const auto end = std::to_chars(text, text + sizeof(text), number).ptr;
  return Fingerprint64(std::string_view(text, static_cast<size_t>(end - text)));
}

}  // namespace fingerprint
}  // namespace fused_embedding
