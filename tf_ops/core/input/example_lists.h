// The lists of values of examples, where they lie in the serialized bytes, and what copies their
// values out.

#ifndef FUSED_EMBEDDING_CORE_INPUT_EXAMPLE_LISTS_H_
#define FUSED_EMBEDDING_CORE_INPUT_EXAMPLE_LISTS_H_

#include <cstdint>
#include <cstring>

#include "tf_ops/core/base/inline.h"

namespace fused_embedding {

// The tag of a field in front of its bytes: number << 3 | type.
constexpr uint8_t DelimitedTag(int number) { return static_cast<uint8_t>(number << 3 | 2); }
constexpr uint8_t kItemTag = DelimitedTag(1);  // of a text in its list, and of a packed list
constexpr uint8_t kFixed32Tag = 1 << 3 | 5;    // of a float that is not packed
constexpr uint8_t kVarintTag = 1 << 3 | 0;     // of an integer that is not packed
constexpr int kMaxVarintBytes = 10;

// A list that was checked: reading its values cannot fail.
struct ExampleList {
  // Of one text: its bytes. Otherwise the first value, or the first tag where `is_tagged`; of more
  // texts the first tag. Null: the example does not have the feature.
  const uint8_t* data = nullptr;
  uint32_t text_bytes = 0;  // of one text
  uint32_t num_values : 31;
  uint32_t is_tagged : 1;  // floats and integers with a tag in front of each

  ExampleList() : num_values(0), is_tagged(0) {}
  ExampleList(const uint8_t* first, int64_t count, bool has_tags = false)
      : data(first),
        num_values(static_cast<uint32_t>(count) & 0x7fffffffu),
        is_tagged(has_tags ? 1 : 0) {}
  bool IsPresent() const { return data != nullptr; }
};

// Of a varint that was checked. Bits above 64 are dropped.
FE_INLINE uint64_t ReadCheckedVarint(const uint8_t** data) {
  const uint8_t* p = *data;
  uint64_t value = *p & 0x7f;
  for (int shift = 7; *p++ >= 0x80; shift += 7) value |= uint64_t{*p & 0x7fu} << shift;
  *data = p;
  return value;
}

FE_INLINE void CopyValues(const ExampleList& list, float* out) {
  if (!list.is_tagged) {
    std::memcpy(out, list.data, list.num_values * sizeof(float));
    return;
  }
  constexpr int64_t kStride = 1 + sizeof(float);
  for (int64_t i = 0; i < list.num_values; ++i) {
    std::memcpy(out + i, list.data + 1 + i * kStride, sizeof(float));
  }
}

FE_INLINE void CopyValues(const ExampleList& list, int64_t* out) {
  const uint8_t* data = list.data;
  for (int64_t i = 0; i < list.num_values; ++i) {
    data += list.is_tagged;
    out[i] = static_cast<int64_t>(ReadCheckedVarint(&data));
  }
}

// Text has assign(const char*, size_t).
template <typename Text>
FE_INLINE void CopyValues(const ExampleList& list, Text* out) {
  if (list.num_values == 1) {
    out->assign(reinterpret_cast<const char*>(list.data), list.text_bytes);
    return;
  }
  const uint8_t* data = list.data;
  for (int64_t i = 0; i < list.num_values; ++i) {
    ++data;  // the tag
    const auto size = static_cast<uint32_t>(ReadCheckedVarint(&data));
    out[i].assign(reinterpret_cast<const char*>(data), size);
    data += size;
  }
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_EXAMPLE_LISTS_H_
