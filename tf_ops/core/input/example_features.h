// What is wanted of examples: their features, and how one is found by its name.

#ifndef FUSED_EMBEDDING_CORE_INPUT_EXAMPLE_FEATURES_H_
#define FUSED_EMBEDDING_CORE_INPUT_EXAMPLE_FEATURES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tf_ops/core/base/inline.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// The lists that a Feature may have; the number is that of its field.
enum class ListKind : uint8_t { kText = 1, kFloat = 2, kInteger = 3 };

enum class FeatureLayout {
  kFixed,   // num_values of each example
  kPadded,  // a multiple of num_values; shorter examples are padded
  kSparse,  // any number; a value has indices
  kRagged,  // any number; an example ends at a split
};

struct ExampleFeature {
  std::string_view name;
  ListKind kind = ListKind::kText;
  FeatureLayout layout = FeatureLayout::kSparse;
  int64_t num_values = 1;    // fixed, padded
  bool has_default = false;  // fixed: otherwise each example must have it
  std::string shape;         // fixed, padded: as errors write it, "[2,3]"

  bool IsDense() const {
    return layout == FeatureLayout::kFixed || layout == FeatureLayout::kPadded;
  }
};

// From a name to the place of its feature: a hash table of integers. A name is known by its last 8
// bytes and its size; long names mostly differ in their ends. What is left of a longer one is
// compared when these are equal.
class FeatureNames {
 public:
  // The names must live as long. Fails where two are the same.
  Status Set(Span<const ExampleFeature> features);

  // The place of the feature, or -1. Bytes up to `end` may be read.
  FE_INLINE int Find(std::string_view name, const char* end) const {
    const uint64_t word = WordOf(name, end);
    for (uint64_t i = HashOf(word, name.size()) >> shift_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.feature < 0) return -1;
      if (slot.word == word && slot.name.size() == name.size() && IsSameStart(slot.name, name)) {
        return slot.feature;
      }
    }
  }

 private:
  struct Slot {
    uint64_t word = 0;
    std::string_view name;
    int feature = -1;
  };

  // The last 8 bytes, or all of a shorter name.
  FE_INLINE static uint64_t WordOf(std::string_view name, const char* end) {
    constexpr size_t kWordBytes = sizeof(uint64_t);
    const size_t size = std::min(name.size(), kWordBytes);
    const char* data = name.data() + name.size() - size;
    uint64_t word = 0;
    if (end - data < static_cast<int64_t>(kWordBytes)) {
      if (size > 0) std::memcpy(&word, data, size);
      return word;
    }
    std::memcpy(&word, data, kWordBytes);
    // Without a branch: names of several sizes alternate.
    const auto num_unused = static_cast<int>(8 * (kWordBytes - size));
    return num_unused == 64 ? 0 : word & (~uint64_t{0} >> num_unused);
  }

  FE_INLINE static uint64_t HashOf(uint64_t word, uint64_t size) {
    constexpr uint64_t kOddGoldenRatio = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
    return (word ^ size) * kOddGoldenRatio;
  }

  // Of names of one size and with the same last 8 bytes.
  FE_INLINE static bool IsSameStart(std::string_view a, std::string_view b) {
    uint64_t difference = 0;
    for (size_t i = 0; i + sizeof(uint64_t) < a.size(); i += sizeof(uint64_t)) {
      uint64_t word_a = 0, word_b = 0;
      std::memcpy(&word_a, a.data() + i, sizeof(word_a));
      std::memcpy(&word_b, b.data() + i, sizeof(word_b));
      difference |= word_a ^ word_b;
    }
    return difference == 0;
  }

  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_EXAMPLE_FEATURES_H_
