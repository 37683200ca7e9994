// The walk over an example as writers make it, in one pass and with few branches.
//
// What is unusual, malformed or not what is wanted is left to odd_example.h, which decides about
// it: two entries of one name, an entry with its value in front, lengths behind the end.

#ifndef FUSED_EMBEDDING_CORE_INPUT_PLAIN_EXAMPLE_H_
#define FUSED_EMBEDDING_CORE_INPUT_PLAIN_EXAMPLE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "tf_ops/core/base/inline.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/input/example_features.h"
#include "tf_ops/core/input/example_lists.h"

namespace fused_embedding {

// The lists of one example: that of feature f is lists[f * stride].
struct ListsOfExample {
  ExampleList* lists = nullptr;
  int64_t stride = 1;

  FE_INLINE ExampleList& operator[](int64_t f) const { return lists[f * stride]; }
};

class PlainExample {
 public:
  PlainExample(Span<const ExampleFeature> features, const FeatureNames& names, bool is_single);

  // Fills `lists`, in which no feature is present. False: the example is not plain, and `lists`
  // has anything.
  bool Read(std::string_view example, ListsOfExample lists) const;

 private:
  struct Bytes {
    const uint8_t* begin = nullptr;
    const uint8_t* end = nullptr;

    FE_INLINE bool empty() const { return begin == end; }
    FE_INLINE int64_t size() const { return end - begin; }
  };

  // Of a feature, which lists of one value are taken from a short entry. Compared without branches
  // on the kind: where writers do not sort entries, these would be guessed wrong.
  struct ShortList {
    uint8_t tag = 0;
    uint8_t least_bytes = 0;
    uint8_t more_bytes = 0;       // above least_bytes
    uint64_t continued_bits = 0;  // of an integer: the bits that say that a varint goes on
  };

  static ShortList ShortListOf(const ExampleFeature& feature);
  const uint8_t* ReadShortEntry(Bytes features, ListsOfExample lists, const char* end) const;
  static bool ReadLongLength(const uint8_t** data, const uint8_t* end, uint32_t* length);
  static bool TakeField(uint8_t tag, Bytes* from, Bytes* field);
  static bool ReadTexts(Bytes values, ExampleList* list);
  static bool ReadFloats(Bytes values, ExampleList* list);
  static bool ReadIntegers(Bytes values, ExampleList* list);
  static bool ReadList(ListKind kind, Bytes values, ExampleList* list);
  bool ReadFeature(const ExampleFeature& feature, Bytes value, ExampleList* list) const;
  bool ReadEntry(Bytes entry, ListsOfExample lists, const char* end) const;

  Span<const ExampleFeature> features_;
  const FeatureNames& names_;
  bool is_single_;
  std::vector<ShortList> short_lists_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_PLAIN_EXAMPLE_H_
