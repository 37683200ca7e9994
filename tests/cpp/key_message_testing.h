// Messages of keys as vectors.

#ifndef FUSED_EMBEDDING_TESTS_CPP_KEY_MESSAGE_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_KEY_MESSAGE_TESTING_H_

#include <vector>

#include "tests/cpp/partition_testing.h"
#include "tf_ops/core/lookup/remote/key_message.h"

namespace fused_embedding {

constexpr int64_t kFormat = 0x46456B6579730001;  // "FEkeys", version 1
constexpr int64_t kFormatWithCounts = kFormat | 0x100;

// The content of a message, as vectors.
struct Message {
  int64_t step = -1;
  std::vector<Ints> keys;  // of each part
  bool has_counts = false;
  std::vector<int32_t> counts;  // of all keys

  bool operator==(const Message& other) const {
    return step == other.step && keys == other.keys && has_counts == other.has_counts &&
           counts == other.counts;
  }
};

inline Array<int64_t> Write(const Message& message) {
  Ints num_keys, all;
  for (const Ints& keys : message.keys) {
    num_keys.push_back(static_cast<int64_t>(keys.size()));
    all.insert(all.end(), keys.begin(), keys.end());
  }
  const int64_t num_parts = static_cast<int64_t>(num_keys.size());
  const int64_t total = static_cast<int64_t>(all.size());
  Array<int64_t> words(NumMessageWords(num_parts, total, message.has_counts), -7);
  const Array<int32_t> counts = Array<int32_t>::Of(message.counts);
  const Span<int64_t> keys = WriteMessage({message.step, AsSpan(num_keys), message.has_counts},
                                          counts.view(), words.span());
  EXPECT_EQ(keys.size, total);
  std::copy(all.begin(), all.end(), keys.begin());
  return words;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_KEY_MESSAGE_TESTING_H_
