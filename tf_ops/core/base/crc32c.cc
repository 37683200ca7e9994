#include "tf_ops/core/base/crc32c.h"

#include <array>
#include <cstring>

namespace fused_embedding {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed
constexpr int kSlices = 8;

// table[k][b]: what byte b does to the checksum when k more bytes follow. Eight bytes are then
// looked up at once ("slicing by 8").
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < kSlices; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint32_t Byte(uint64_t word, int number) {
  return static_cast<uint32_t>(word >> (8 * number)) & 0xff;
}

uint64_t LoadWord(const char* data) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  uint64_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Sse42Crc32c(Span<const char> bytes, uint32_t crc) {
  const char* data = bytes.data;
  uint64_t state = static_cast<uint32_t>(~crc);
  int64_t left = bytes.size;
  for (; left >= 8; left -= 8, data += 8) {
    state = __builtin_ia32_crc32di(state, LoadWord(data));
  }
  auto state32 = static_cast<uint32_t>(state);
  for (; left > 0; --left, ++data) {
    state32 = __builtin_ia32_crc32qi(state32, static_cast<unsigned char>(*data));
  }
  return ~state32;
}
#endif

}  // namespace

uint32_t PortableCrc32c(Span<const char> bytes, uint32_t crc) {
  const char* data = bytes.data;
  int64_t left = bytes.size;
  crc = ~crc;
  for (; left >= kSlices; left -= kSlices, data += kSlices) {
    const uint64_t word = LoadWord(data) ^ crc;
    crc = 0;
    for (int i = 0; i < kSlices; ++i) {
      crc ^= kTables[static_cast<size_t>(kSlices - 1 - i)][Byte(word, i)];
    }
  }
  for (; left > 0; --left, ++data) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(*data)) & 0xff];
  }
  return ~crc;
}

uint32_t Crc32c(Span<const char> bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2");
  if (has_sse42) return Sse42Crc32c(bytes, crc);
#endif
  return PortableCrc32c(bytes, crc);
}

}  // namespace fused_embedding
