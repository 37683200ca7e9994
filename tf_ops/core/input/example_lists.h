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
  ExampleList() : num_values(0), is_tagged(0), text_bytes(0), is_word(0) {}
  // `first` is the first value, or the first tag where there `are_tagged`; of texts the first tag,
  // but of one text its bytes.
  ExampleList(const uint8_t* first, int64_t count, bool are_tagged = false)
      : bits(reinterpret_cast<uint64_t>(first)),
        num_values(static_cast<uint32_t>(count) & kMost),
        is_tagged(are_tagged ? 1 : 0),
        text_bytes(0),
        is_word(0) {}
  static ExampleList OfText(const uint8_t* text, int64_t size) {
    ExampleList list(text, 1);
    list.text_bytes = static_cast<uint32_t>(size) & kMost;
    return list;
  }
  // One value of up to 8 bytes, which are kept here: Run does not wait for the example then.
  FE_INLINE static ExampleList OfWord(uint64_t word, uint32_t size) {
    ExampleList list;
    list.bits = word;
    list.num_values = 1;
    list.text_bytes = size;
    list.is_word = 1;
    return list;
  }

  FE_INLINE bool IsPresent() const { return (bits | num_values) != 0; }
  FE_INLINE const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(bits); }

  static constexpr uint32_t kMost = 0x7fffffffu;

  uint64_t bits = 0;  // an address, or the bytes of a value
  uint32_t num_values : 31;
  uint32_t is_tagged : 1;  // floats and integers with a tag in front of each
  uint32_t text_bytes : 31;
  uint32_t is_word : 1;
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
  if (list.is_word) {
    std::memcpy(out, &list.bits, sizeof(float));
  } else if (!list.is_tagged) {
    std::memcpy(out, list.data(), list.num_values * sizeof(float));
  } else {
    constexpr int64_t kStride = 1 + sizeof(float);
    for (int64_t i = 0; i < list.num_values; ++i) {
      std::memcpy(out + i, list.data() + 1 + i * kStride, sizeof(float));
    }
  }
}

// Calls use(i, value) for each integer of a list.
template <typename Use>
FE_INLINE void ForEachInteger(const ExampleList& list, const Use& use) {
  const uint8_t* data = list.is_word ? reinterpret_cast<const uint8_t*>(&list.bits) : list.data();
  for (int64_t i = 0; i < list.num_values; ++i) {
    data += list.is_tagged;
    use(i, static_cast<int64_t>(ReadCheckedVarint(&data)));
  }
}

// Calls use(i, data, size) for each text of a list that is no word.
template <typename Use>
FE_INLINE void ForEachText(const ExampleList& list, const Use& use) {
  const uint8_t* data = list.data();
  if (list.num_values == 1) return use(0, data, size_t{list.text_bytes});
  for (int64_t i = 0; i < list.num_values; ++i) {
    ++data;  // the tag
    const size_t size = static_cast<uint32_t>(ReadCheckedVarint(&data));
    use(i, data, size);
    data += size;
  }
}

FE_INLINE void CopyValues(const ExampleList& list, int64_t* out) {
  ForEachInteger(list, [&](int64_t i, int64_t value) { out[i] = value; });
}

// Text has Assign(const uint8_t*, size_t) and AssignWord(uint64_t, size_t), for up to 8 bytes.
template <typename Text>
FE_INLINE void CopyValues(const ExampleList& list, Text* out) {
  if (list.is_word) return out->AssignWord(list.bits, list.text_bytes);
  ForEachText(list,
              [&](int64_t i, const uint8_t* data, size_t size) { out[i].Assign(data, size); });
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_EXAMPLE_LISTS_H_
