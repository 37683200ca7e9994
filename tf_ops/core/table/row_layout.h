// One row of an embedding table, contiguous:
//
//   key int64 | frequency uint32 | version uint32 | value [dim] T | slots, [width] ComputeType<T>
//   each
//
// Example, float, dim 16, Adagrad: 16 + 64 + 64 bytes, read and trained in three cache lines.

#ifndef FUSED_EMBEDDING_CORE_TABLE_ROW_LAYOUT_H_
#define FUSED_EMBEDDING_CORE_TABLE_ROW_LAYOUT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tf_ops/core/base/dtype.h"

namespace fused_embedding {

struct RowHeader {
  int64_t key;
  uint32_t frequency;  // occurrences in training lookups; saturates
  uint32_t version;    // step of the last training lookup; saturates below kDeadVersion
};
static_assert(sizeof(RowHeader) == 16);

constexpr uint32_t kDeadVersion = 0xffffffffu;  // of a row that was erased

// Frequency and version as a row stores them.
inline uint32_t SaturatedFrequency(int64_t frequency) {
  constexpr int64_t kMaxFrequency = std::numeric_limits<uint32_t>::max();
  return static_cast<uint32_t>(std::min(frequency, kMaxFrequency));
}
inline uint32_t SaturatedVersion(int64_t step) {
  const int64_t max_version = int64_t{kDeadVersion} - 1;
  return static_cast<uint32_t>(step < 0 ? 0 : step < max_version ? step : max_version);
}

// The header of a row at any address, aligned or not, as in a file.
inline RowHeader HeaderAt(const char* row) {
  RowHeader header;
  std::memcpy(&header, row, sizeof(header));
  return header;
}

// The value type of a table, in the order of FE_FOR_EACH_VALUE_TYPE.
enum class ValueType { kFloat, kDouble, kHalf, kBFloat16 };

template <typename T>
constexpr ValueType kValueTypeOf = std::is_same_v<T, float>    ? ValueType::kFloat
                                   : std::is_same_v<T, double> ? ValueType::kDouble
                                   : std::is_same_v<T, Half>   ? ValueType::kHalf
                                                               : ValueType::kBFloat16;

inline int64_t ValueBytes(ValueType type) {
  switch (type) {
    case ValueType::kFloat:
      return 4;
    case ValueType::kDouble:
      return 8;
    case ValueType::kHalf:
    case ValueType::kBFloat16:
      return 2;
  }
  return 0;
}

// An optimizer's state in a row: `width` numbers of ComputeType<T>.
struct Slot {
  std::string name;      // "Adagrad/accumulator": unique in a table, written to checkpoints
  int64_t width = 0;     // dim, or 1 for one number a row
  double initial = 0.0;  // value of every number of the slot in a new row

  bool operator==(const Slot& other) const { return name == other.name && width == other.width; }
};

struct RowLayout {
  ValueType value_type = ValueType::kFloat;
  int64_t dim = 0;
  std::vector<Slot> slots;

  int64_t value_bytes() const { return dim * ValueBytes(value_type); }
  // Numbers of slots are doubles in a table of doubles, and floats otherwise.
  int64_t slot_number_bytes() const { return value_type == ValueType::kDouble ? 8 : 4; }
  int64_t slot_width() const {
    int64_t width = 0;
    for (const Slot& slot : slots) width += slot.width;
    return width;
  }
  // Offsets from the start of a row, in bytes.
  int64_t value_offset() const { return int64_t{sizeof(RowHeader)}; }
  int64_t slots_offset() const { return RoundUp(value_offset() + value_bytes()); }
  // Offset of a slot, or -1 if the layout does not have it.
  int64_t SlotOffset(const std::string& name) const {
    int64_t offset = slots_offset();
    for (const Slot& slot : slots) {
      if (slot.name == name) return offset;
      offset += slot.width * slot_number_bytes();
    }
    return -1;
  }
  int64_t row_bytes() const { return RoundUp(slots_offset() + slot_width() * slot_number_bytes()); }

 private:
  static int64_t RoundUp(int64_t bytes) { return (bytes + 7) / 8 * 8; }
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_ROW_LAYOUT_H_
