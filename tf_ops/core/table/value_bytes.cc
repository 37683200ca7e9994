#include "tf_ops/core/table/value_bytes.h"

#include "tf_ops/core/base/dtype.h"

namespace fused_embedding {
namespace {

template <typename T>
void FillValuesOf(double value, int64_t n, char* out) {
  T stored;
  Store(static_cast<ComputeType<T>>(value), &stored);
  for (int64_t i = 0; i < n; ++i) std::memcpy(out + i * int64_t{sizeof(T)}, &stored, sizeof(T));
}

template <typename T>
double SquaredNormOf(const char* values, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    T stored;
    std::memcpy(&stored, values + i * int64_t{sizeof(T)}, sizeof(T));
    const double x = Load(stored);
    sum += x * x;
  }
  return sum;
}

}  // namespace

void FillValues(ValueType type, double value, int64_t n, char* out) {
  switch (type) {
    case ValueType::kFloat:
      return FillValuesOf<float>(value, n, out);
    case ValueType::kDouble:
      return FillValuesOf<double>(value, n, out);
    case ValueType::kHalf:
      return FillValuesOf<Half>(value, n, out);
    case ValueType::kBFloat16:
      return FillValuesOf<BFloat16>(value, n, out);
  }
}

double SquaredNorm(ValueType type, const char* values, int64_t n) {
  switch (type) {
    case ValueType::kFloat:
      return SquaredNormOf<float>(values, n);
    case ValueType::kDouble:
      return SquaredNormOf<double>(values, n);
    case ValueType::kHalf:
      return SquaredNormOf<Half>(values, n);
    case ValueType::kBFloat16:
      return SquaredNormOf<BFloat16>(values, n);
  }
  return 0.0;
}

std::vector<char> BytesBehindValue(const RowLayout& layout) {
  const int64_t value_end = layout.value_offset() + layout.value_bytes();
  std::vector<char> bytes(static_cast<size_t>(layout.row_bytes() - value_end));
  char* slot_begin = bytes.data() + (layout.slots_offset() - value_end);
  const bool is_double = layout.value_type == ValueType::kDouble;
  for (const Slot& slot : layout.slots) {
    FillValues(is_double ? ValueType::kDouble : ValueType::kFloat, slot.initial, slot.width,
               slot_begin);
    slot_begin += slot.width * layout.slot_number_bytes();
  }
  return bytes;
}

}  // namespace fused_embedding
