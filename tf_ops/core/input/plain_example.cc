#include "tf_ops/core/input/plain_example.h"

#include <cstring>

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

// The continued bits of 8 bytes.
constexpr uint64_t kContinued = 0x8080808080808080u;

// The last bytes in front of `end`, up to 8, as the low bytes of a word. Of more any word. 8 bytes
// in front of `end` are read.
FE_INLINE uint64_t WordInFrontOf(const uint8_t* end, uint8_t size) {
  uint64_t word = 0;
  std::memcpy(&word, end - sizeof(word), sizeof(word));
  return word >> (8 * ((8 - size) & 7));
}

// Of 1 to 8 bytes: whether one that should say that a varint goes on does not, or the last one
// does.
FE_INLINE uint64_t WrongContinuedBits(uint64_t word, uint8_t size) {
  const uint64_t wanted = (uint64_t{1} << (8 * ((size - 1) & 7))) - 1;
  return (word ^ wanted) & kContinued;
}

}  // namespace

PlainExample::PlainExample(Span<const ExampleFeature> features, const FeatureNames& names,
                           bool is_single)
    : features_(features), names_(names), is_single_(is_single) {
  for (const ExampleFeature& feature : features) short_lists_.push_back(ShortListOf(feature));
}

PlainExample::ShortList PlainExample::ShortListOf(const ExampleFeature& feature) {
  if (feature.IsDense() && feature.num_values != 1) return {};  // a tag that is none
  const uint8_t tag = DelimitedTag(static_cast<int>(feature.kind));
  switch (feature.kind) {
    case ListKind::kText:
      return {tag, 0, 127, 0};
    case ListKind::kFloat:
      return {tag, sizeof(float), 0, 0};
    case ListKind::kInteger:
      return {tag, 1, 7, kContinued};
  }
  return {};
}

// Reads the first entry if all of its lengths are below 128 and its list has one value:
//
//   10 entry_bytes 10 name_bytes name... 18 value_bytes tag list_bytes 10 size value...
//
// Each length says how many bytes follow to the end of the entry. Packed numbers and texts look the
// same. Returns the end of the entry, or null where it is another one.
FE_INLINE const uint8_t* PlainExample::ReadShortEntry(Bytes features, ListsOfExample lists,
                                                      const char* end) const {
  constexpr int kFixedBytes = 12;  // all but the name and the value
  const uint8_t* entry = features.begin;
  if (features.size() < kFixedBytes) return nullptr;
  const int entry_bytes = entry[1];
  const int name_bytes = entry[3];
  const int value_bytes = entry_bytes - name_bytes - 4;
  const uint8_t* entry_end = entry + 2 + entry_bytes;
  if ((entry[0] != kEntryTag) | (entry[2] != kNameTag) | (entry_bytes >= 0x80) | (value_bytes < 4) |
      (entry_end > features.end)) {
    return nullptr;
  }
  const uint8_t* value = entry + 4 + name_bytes;  // its tag and what follows, within the entry
  const int wrong = (value[0] ^ kValueTag) | (value[1] ^ value_bytes) |
                    (value[3] ^ (value_bytes - 2)) | (value[4] ^ kItemTag) |
                    (value[5] ^ (value_bytes - 4));
  if (wrong != 0) return nullptr;
  const int f =
      names_.Find({reinterpret_cast<const char*>(entry + 4), static_cast<size_t>(name_bytes)}, end);
  if (f < 0) return entry_end;
  const ShortList& wanted = short_lists_[static_cast<size_t>(f)];
  ExampleList& list = lists[f];
  const uint8_t size = value[5];
  const uint64_t word = WordInFrontOf(entry_end, size);
  if ((value[2] != wanted.tag) |
      (static_cast<uint8_t>(size - wanted.least_bytes) > wanted.more_bytes) | list.IsPresent() |
      ((WrongContinuedBits(word, size) & wanted.continued_bits) != 0)) {
    return nullptr;
  }
  list =
      size <= sizeof(word) ? ExampleList::OfWord(word, size) : ExampleList::OfText(value + 6, size);
  return entry_end;
}

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
  *list = count == 1 ? ExampleList::OfText(text.begin, text.size()) : ExampleList(first, count);
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
      if (const uint8_t* entry_end = ReadShortEntry(features, lists, text_end)) {
        features.begin = entry_end;
        continue;
      }
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
