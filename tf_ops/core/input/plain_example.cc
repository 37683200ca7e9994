#include "tf_ops/core/input/plain_example.h"

namespace fused_embedding {
namespace {

constexpr uint8_t kFeaturesTag = DelimitedTag(1);  // of Example
constexpr uint8_t kEntryTag = DelimitedTag(1);     // of Features
constexpr uint8_t kNameTag = DelimitedTag(1);      // of an entry
constexpr uint8_t kValueTag = DelimitedTag(2);

// The number of varints that fill [data, end), or -1.
int64_t CountVarints(const uint8_t* data, const uint8_t* end) {
  int64_t count = 0;
  while (data < end) {
    const uint8_t* first = data;
    while (*data >= 0x80) {
      if (++data == end || data - first == kMaxVarintBytes) return -1;
    }
    ++data;
    ++count;
  }
  return count;
}

int64_t CountTaggedVarints(const uint8_t* data, const uint8_t* end) {
  int64_t count = 0;
  while (data < end) {
    if (*data++ != kVarintTag || data == end) return -1;
    const uint8_t* first = data;
    while (*data >= 0x80) {
      if (++data == end || data - first == kMaxVarintBytes) return -1;
    }
    ++data;
    ++count;
  }
  return count;
}

}  // namespace

// A length of more than one byte, up to what an example can have.
bool PlainExample::ReadLongLength(const uint8_t** data, const uint8_t* end, uint32_t* length) {
  const uint8_t* p = *data;
  uint32_t value = 0;
  for (int shift = 0; shift < 28; shift += 7) {
    if (p == end) return false;
    value |= uint32_t{*p & 0x7fu} << shift;
    if (*p++ < 0x80) {
      *data = p;
      *length = value;
      return true;
    }
  }
  return false;
}

// Takes a field with this tag off the front.
FE_INLINE bool PlainExample::TakeField(uint8_t tag, Bytes* from, Bytes* field) {
  const uint8_t* p = from->begin;
  if (from->size() < 2 || *p != tag) return false;
  uint32_t length = *++p;
  if (length < 0x80) {
    ++p;
  } else if (!ReadLongLength(&p, from->end, &length)) {
    return false;
  }
  if (int64_t{length} > from->end - p) return false;
  *field = {p, p + length};
  from->begin = field->end;
  return true;
}

FE_INLINE bool PlainExample::ReadTexts(Bytes values, ExampleList* list) {
  const uint8_t* first = values.begin;
  Bytes text;
  int64_t count = 0;
  while (!values.empty()) {
    if (!TakeField(kItemTag, &values, &text)) return false;
    ++count;
  }
  *list = ExampleList(count == 1 ? text.begin : first, count);
  list->text_bytes = static_cast<uint32_t>(text.size());
  return true;
}

FE_INLINE bool PlainExample::ReadFloats(Bytes values, ExampleList* list) {
  constexpr int64_t kTagged = 1 + sizeof(float);
  if (!values.empty() && *values.begin == kFixed32Tag) {
    const int64_t count = values.size() / kTagged;
    if (count * kTagged != values.size()) return false;
    for (int64_t i = 0; i < count; ++i) {
      if (values.begin[i * kTagged] != kFixed32Tag) return false;
    }
    *list = ExampleList(values.begin, count, true);
    return true;
  }
  Bytes packed = values;
  if (!values.empty() && (!TakeField(kItemTag, &values, &packed) || !values.empty())) return false;
  *list = ExampleList(packed.begin, packed.size() / static_cast<int64_t>(sizeof(float)));
  return packed.size() % sizeof(float) == 0;
}

FE_INLINE bool PlainExample::ReadIntegers(Bytes values, ExampleList* list) {
  const bool is_tagged = !values.empty() && *values.begin == kVarintTag;
  Bytes packed = values;
  if (!is_tagged && !values.empty() &&
      (!TakeField(kItemTag, &values, &packed) || !values.empty())) {
    return false;
  }
  const int64_t count = is_tagged ? CountTaggedVarints(packed.begin, packed.end)
                                  : CountVarints(packed.begin, packed.end);
  *list = ExampleList(packed.begin, count, is_tagged);
  return count >= 0;
}

FE_INLINE bool PlainExample::ReadList(ListKind kind, Bytes values, ExampleList* list) {
  switch (kind) {
    case ListKind::kText:
      return ReadTexts(values, list);
    case ListKind::kFloat:
      return ReadFloats(values, list);
    case ListKind::kInteger:
      return ReadIntegers(values, list);
  }
  return false;
}

FE_INLINE bool PlainExample::ReadFeature(const ExampleFeature& feature, Bytes value,
                                         ExampleList* list) const {
  if (value.empty() && (is_single_ || feature.IsDense())) return true;  // as if it was not there
  if (list->IsPresent()) return false;
  if (value.empty()) {
    *list = ExampleList(value.begin, 0);
    return true;
  }
  Bytes values;
  if (!TakeField(DelimitedTag(static_cast<int>(feature.kind)), &value, &values) || !value.empty() ||
      !ReadList(feature.kind, values, list)) {
    return false;
  }
  if (feature.layout == FeatureLayout::kFixed) return list->num_values == feature.num_values;
  return feature.layout != FeatureLayout::kPadded || list->num_values % feature.num_values == 0;
}

FE_INLINE bool PlainExample::ReadEntry(Bytes entry, ListsOfExample lists, const char* end) const {
  Bytes name, value;
  if (!TakeField(kNameTag, &entry, &name) || !TakeField(kValueTag, &entry, &value) ||
      !entry.empty()) {
    return false;
  }
  const int f = names_.Find(
      {reinterpret_cast<const char*>(name.begin), static_cast<size_t>(name.size())}, end);
  return f < 0 || ReadFeature(features_[f], value, &lists[f]);
}

bool PlainExample::Read(std::string_view example, ListsOfExample lists) const {
  const char* text_end = example.data() + example.size();
  const auto* begin = reinterpret_cast<const uint8_t*>(example.data());
  Bytes rest = {begin, begin + example.size()};
  Bytes features, entry;
  while (!rest.empty()) {
    if (!TakeField(kFeaturesTag, &rest, &features)) return false;
    while (!features.empty()) {
      if (!TakeField(kEntryTag, &features, &entry) || !ReadEntry(entry, lists, text_end)) {
        return false;
      }
    }
  }
  for (int64_t f = 0; f < features_.size; ++f) {
    const ExampleFeature& feature = features_[f];
    if (feature.layout == FeatureLayout::kFixed && !feature.has_default && !lists[f].IsPresent()) {
      return false;
    }
  }
  return true;
}

}  // namespace fused_embedding
