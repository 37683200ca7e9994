#include "tf_ops/core/input/example_keys.h"

#include <string_view>
#include <type_traits>

namespace fused_embedding {
namespace {

struct Texts {
  const std::string_view* data = nullptr;
  int64_t size = 0;

  FE_INLINE std::string_view operator[](int64_t i) const { return data[i]; }
};

// Collects values, which become keys together.
template <typename Value>
class KeyWriter {
 public:
  KeyWriter(const KeyRule& rule, int64_t* keys) : rule_(rule), keys_(keys) {}

  FE_INLINE void Add(Value value) {
    values_[size_++] = value;
    if (size_ == kHashBlock) Flush();
  }

  void Flush() {
    using Values = std::conditional_t<std::is_integral_v<Value>, Span<const Value>, Texts>;
    const Values values = {values_, size_};
    if (rule_.kind == KeyKind::kHash) {
      WriteHashes(rule_, values, 0, size_, keys_);
    } else if constexpr (std::is_integral_v<Value>) {
      WriteIdentities(rule_, values, 0, size_, keys_);
    }
    keys_ += size_;
    size_ = 0;
  }

 private:
  const KeyRule& rule_;
  int64_t* keys_;
  int64_t size_ = 0;
  Value values_[kHashBlock];
};

FE_INLINE void AddValues(const ExampleList& list, KeyWriter<std::string_view>* writer) {
  if (list.is_word) {
    return writer->Add({reinterpret_cast<const char*>(&list.bits), list.text_bytes});
  }
  ForEachText(list, [&](int64_t, const uint8_t* data, size_t size) {
    writer->Add({reinterpret_cast<const char*>(data), size});
  });
}

FE_INLINE void AddValues(const ExampleList& list, KeyWriter<int64_t>* writer) {
  ForEachInteger(list, [&](int64_t, int64_t value) { writer->Add(value); });
}

template <typename Value>
void WriteKeys(Span<const ExampleList> lists, const KeyRule& rule, int64_t* keys) {
  KeyWriter<Value> writer(rule, keys);
  for (const ExampleList& list : lists) AddValues(list, &writer);
  writer.Flush();
}

}  // namespace

void WriteKeysOfLists(Span<const ExampleList> lists, ListKind kind, const KeyRule& rule,
                      int64_t first_example, int64_t* keys, int64_t* rows) {
  for (int64_t i = 0; i < lists.size; ++i) {
    for (int64_t v = 0; v < lists[i].num_values; ++v) *rows++ = first_example + i;
  }
  if (kind == ListKind::kText) {
    WriteKeys<std::string_view>(lists, rule, keys);
  } else {
    WriteKeys<int64_t>(lists, rule, keys);
  }
}

}  // namespace fused_embedding
