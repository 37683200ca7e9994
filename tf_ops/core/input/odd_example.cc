#include "tf_ops/core/input/odd_example.h"

#include <algorithm>
#include <limits>

#include "tf_ops/core/input/wire_reader.h"

namespace fused_embedding {
namespace {

constexpr int64_t kMaxBytes = std::numeric_limits<int32_t>::max();

// The dtype of a list, and what it is called where values are counted.
const char* TypeOf(ListKind kind) {
  switch (kind) {
    case ListKind::kText:
      return "string";
    case ListKind::kFloat:
      return "float";
    case ListKind::kInteger:
      return "int64";
  }
  return "";
}
const char* ListName(ListKind kind) { return kind == ListKind::kText ? "bytes" : TypeOf(kind); }

bool ReadTexts(WireReader* reader, ExampleList* list) {
  const uint8_t* first = reader->data();
  std::string_view text;
  int64_t count = 0;
  for (; !reader->IsAtEnd(); ++count) {
    if (!reader->Take(kItemTag) || !reader->ReadBytes(&text)) return false;
  }
  *list = count == 1 ? ExampleList::OfText(reinterpret_cast<const uint8_t*>(text.data()),
                                           static_cast<int64_t>(text.size()))
                     : ExampleList(first, count);
  return true;
}

// The number of values that are not packed, or -1.
template <typename ReadValue>
int64_t CountTagged(WireReader* reader, uint8_t tag, const ReadValue& read_value) {
  int64_t count = 0;
  for (; !reader->IsAtEnd(); ++count) {
    if (!reader->Take(tag) || !read_value()) return -1;
  }
  return count;
}

// Of a packed list, as many as its length says, of which `most` are read: stock's parser does not
// miss the others, as an error of the count follows.
bool ReadPackedFloats(WireReader* reader, int64_t most, ExampleList* list) {
  uint32_t length = 0;
  if (!reader->Take(kItemTag) || !reader->ReadLength(&length)) return false;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  const int64_t count = int64_t{length} / kBytes;
  *list = ExampleList(reader->data(), count);
  return reader->Skip(std::min(count, most) * kBytes);
}

bool ReadFloats(WireReader* reader, int64_t most, ExampleList* list) {
  *list = ExampleList(reader->data(), 0);
  if (reader->IsAtEnd()) return true;
  if (!reader->NextIs(kFixed32Tag)) return ReadPackedFloats(reader, most, list);
  const uint8_t* first = reader->data();
  const int64_t count =
      CountTagged(reader, kFixed32Tag, [reader] { return reader->Skip(sizeof(float)); });
  *list = ExampleList(first, count, true);
  return count >= 0;
}

bool ReadIntegers(WireReader* reader, ExampleList* list) {
  *list = ExampleList(reader->data(), 0);
  if (reader->IsAtEnd()) return true;
  uint64_t ignored = 0;
  const auto read_value = [reader, &ignored] { return reader->ReadVarint(&ignored); };
  if (reader->NextIs(kVarintTag)) {
    const uint8_t* first = reader->data();
    const int64_t count = CountTagged(reader, kVarintTag, read_value);
    *list = ExampleList(first, count, true);
    return count >= 0;
  }
  uint32_t length = 0;
  if (!reader->Take(kItemTag) || !reader->ReadLength(&length)) return false;
  reader->LimitTo(length);
  const uint8_t* first = reader->data();
  int64_t count = 0;
  for (; !reader->IsAtEnd(); ++count) {
    if (!read_value()) return false;
  }
  *list = ExampleList(first, count);
  return true;
}

// A list behind its tag. What follows it is not looked at.
bool ReadList(const ExampleFeature& feature, std::string_view bytes, ExampleList* list) {
  WireReader reader(bytes);
  uint32_t length = 0;
  if (!reader.ReadLength(&length)) return false;
  reader.LimitTo(length);
  const bool is_fixed = feature.layout == FeatureLayout::kFixed;
  switch (feature.kind) {
    case ListKind::kText:
      return ReadTexts(&reader, list);
    case ListKind::kFloat:
      return ReadFloats(&reader, is_fixed ? feature.num_values : kMaxBytes, list);
    case ListKind::kInteger:
      return ReadIntegers(&reader, list);
  }
  return false;
}

// False for a tag of no list.
bool KindOf(std::string_view value, ListKind* kind) {
  for (const ListKind any : {ListKind::kText, ListKind::kFloat, ListKind::kInteger}) {
    *kind = any;
    if (static_cast<uint8_t>(value[0]) == DelimitedTag(static_cast<int>(any))) return true;
  }
  return false;
}

}  // namespace

// An error of an entry, or of one that is missing.
template <typename... Parts>
Status OddExample::Error(std::string_view feature, const Parts&... parts) const {
  if (is_single_) return InvalidArgument("Key: ", feature, ".  ", parts...);
  return InvalidArgument("Name: ", name_, ", Key: ", feature, ", Index: ", index_, ".  ", parts...);
}

Status OddExample::MalformedList(const ExampleFeature& feature) const {
  if (!is_single_) return Error(feature.name, "Can't parse serialized Example.");
  if (feature.kind == ListKind::kText && feature.layout != FeatureLayout::kFixed) {
    return Error(feature.name,
                 "Can't parse serialized Example: Could not get num elements in bytes_list.");
  }
  return Error(feature.name, "Can't parse serialized Example: Parsing ", ListName(feature.kind),
               "_list failed.");
}

// The name and the value of an entry, in either order.
bool OddExample::ReadEntry(WireReader* reader, Entry* entry) {
  uint32_t length = 0;
  if (!reader->ReadLength(&length)) return false;
  const uint8_t* outer = reader->LimitTo(length);
  for (int field = 0; field < 2; ++field) {
    uint32_t tag = 0;
    if (!reader->ReadLength(&tag)) return false;
    if (tag != DelimitedTag(1) && tag != DelimitedTag(2)) return false;
    if (!reader->ReadBytes(tag == DelimitedTag(1) ? &entry->name : &entry->value)) return false;
  }
  if (!reader->IsAtEnd()) return false;
  reader->SetLimit(outer);
  return true;
}

bool OddExample::ReadEntries(std::string_view example, std::vector<Entry>* entries) {
  if (static_cast<int64_t>(example.size()) > kMaxBytes) return false;
  WireReader reader(example);
  while (!reader.IsAtEnd()) {
    if (!reader.Take(DelimitedTag(1))) {
      if (!reader.SkipField()) return false;
      continue;
    }
    uint32_t length = 0;
    if (!reader.ReadLength(&length)) return false;
    const uint8_t* outer = reader.LimitTo(length);
    while (!reader.IsAtEnd()) {
      Entry entry;
      if (!reader.Take(DelimitedTag(1)) || !ReadEntry(&reader, &entry)) return false;
      entries->push_back(entry);
    }
    reader.SetLimit(outer);
  }
  return true;
}

Status OddExample::CheckCount(const ExampleFeature& feature, int64_t f, int64_t count) const {
  if (feature.layout == FeatureLayout::kFixed) {
    if (count == feature.num_values) return Status();
    // Where there is no room for a text, stock's parser says that the list is malformed.
    if (feature.kind == ListKind::kText && count > feature.num_values) {
      return MalformedList(feature);
    }
    if (is_single_) {
      return Error(feature.name, "Can't parse serialized Example: Some ", ListName(feature.kind),
                   "_list slice was not parsed.");
    }
    return Error(feature.name, "Number of ", ListName(feature.kind),
                 " values != expected.  Values size: ", count,
                 " but output shape: ", feature.shape);
  }
  if (feature.layout != FeatureLayout::kPadded || count % feature.num_values == 0) return Status();
  if (is_single_) {
    return InvalidArgument("Error while parsing feature with key ", feature.name,
                           ": number of elements should be divisible by ", feature.num_values,
                           ", found ", count, " instead");
  }
  const int64_t num_before = num_before_.empty() ? 0 : num_before_[f];
  return Error(feature.name, "Number of ", ListName(feature.kind),
               " values is not a multiple of stride length. Saw ", num_before + count,
               " values but output shape is: ", feature.shape);
}

Status OddExample::ReadFeature(const Entry& entry, int64_t f, ListsOfExample lists) const {
  const ExampleFeature& feature = features_[f];
  ListKind kind = feature.kind;
  if (!entry.value.empty() && !KindOf(entry.value, &kind)) {
    return InvalidArgument("Unsupported datatype.");
  }
  if (entry.value.empty() && (is_single_ || feature.IsDense())) return Status();
  if (lists[f].IsPresent()) return Status();
  if (entry.value.empty()) {
    lists[f] = ExampleList(reinterpret_cast<const uint8_t*>(entry.value.data()), 0);
    return Status();
  }
  if (kind != feature.kind) {
    if (feature.IsDense()) {
      return Error(entry.name, "Data types don't match. Data type: ", TypeOf(kind),
                   " but expected type: ", TypeOf(feature.kind));
    }
    return Error(entry.name, "Data types don't match. Expected type: ", TypeOf(feature.kind),
                 ", Actual type: ", TypeOf(kind));
  }
  if (!ReadList(feature, entry.value.substr(1), &lists[f])) return MalformedList(feature);
  return CheckCount(feature, f, lists[f].num_values);
}

Status OddExample::CheckMissing(ListsOfExample lists) const {
  for (int64_t f = 0; f < features_.size; ++f) {
    const ExampleFeature& feature = features_[f];
    if (feature.layout != FeatureLayout::kFixed || feature.has_default || lists[f].IsPresent()) {
      continue;
    }
    const std::string place = is_single_ ? "" : "Name: " + std::string(name_) + ", ";
    return InvalidArgument(place, "Feature: ", feature.name, " (data type: ", TypeOf(feature.kind),
                           ") is required but could not be found.");
  }
  return Status();
}

Status OddExample::Read(std::string_view example, ListsOfExample lists) const {
  for (int64_t f = 0; f < features_.size; ++f) lists[f] = ExampleList();
  std::vector<Entry> entries;
  if (!ReadEntries(example, &entries)) {
    return InvalidArgument("Could not parse example input, value: '", example, "'");
  }
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const int f = names_.Find(entry->name, entry->name.data() + entry->name.size());
    if (f >= 0) FE_RETURN_IF_ERROR(ReadFeature(*entry, f, lists));
  }
  return CheckMissing(lists);
}

}  // namespace fused_embedding
