// An example that plain_example.h leaves: whether stock's parser takes it, what it takes of it, and
// otherwise the text of its error.
//
// Entries count from the back: of two with one name the last one counts, and nobody looks at the
// list of the other one. An error is that of the entry that is furthest behind.

#ifndef FUSED_EMBEDDING_CORE_INPUT_ODD_EXAMPLE_H_
#define FUSED_EMBEDDING_CORE_INPUT_ODD_EXAMPLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/input/example_features.h"
#include "tf_ops/core/input/plain_example.h"

namespace fused_embedding {

class WireReader;

class OddExample {
 public:
  OddExample(Span<const ExampleFeature> features, const FeatureNames& names, bool is_single)
      : features_(features), names_(names), is_single_(is_single) {}

  // What errors say of the example.
  void SetPlace(std::string_view name, int64_t index) {
    name_ = name;
    index_ = index;
  }
  // Of a padded feature, values of the examples before, which stock's error counts too.
  void SetNumBefore(Span<const int64_t> num_before) { num_before_ = num_before; }

  // Fills `lists`, whatever is in it.
  Status Read(std::string_view example, ListsOfExample lists) const;

 private:
  // Never null: a feature with an empty value is present.
  struct Entry {
    std::string_view name = "";
    std::string_view value = "";
  };

  static bool ReadEntry(WireReader* reader, Entry* entry);
  static bool ReadEntries(std::string_view example, std::vector<Entry>* entries);
  Status ReadFeature(const Entry& entry, int64_t f, ListsOfExample lists) const;
  Status CheckCount(const ExampleFeature& feature, int64_t f, int64_t count) const;
  Status CheckMissing(ListsOfExample lists) const;

  template <typename... Parts>
  Status Error(std::string_view feature, const Parts&... parts) const;
  Status MalformedList(const ExampleFeature& feature) const;

  Span<const ExampleFeature> features_;
  const FeatureNames& names_;
  bool is_single_;
  std::string_view name_;
  int64_t index_ = 0;
  Span<const int64_t> num_before_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_ODD_EXAMPLE_H_
