// Messages of keys as vectors.

#ifndef FUSED_EMBEDDING_TESTS_CPP_KEY_MESSAGE_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_KEY_MESSAGE_TESTING_H_

#include <vector>

#include "tests/cpp/partition_testing.h"
#include "tf_ops/core/lookup/remote/key_message.h"

namespace fused_embedding {

// "FEkeys", bytes of a count, bytes of a key, version 2.
constexpr int64_t kFormat = 0x46456B6579730402;
constexpr int64_t kFormatWithCounts = 0x46456B6579731402;

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
  KeyMessage written;
  written.step = message.step;
  written.has_counts = message.has_counts;
  Ints all;
  for (const Ints& keys : message.keys) {
    written.num_keys.push_back(static_cast<int64_t>(keys.size()));
    all.insert(all.end(), keys.begin(), keys.end());
  }
  EXPECT_TRUE(written.Allocate().ok());
  std::copy(all.begin(), all.end(), written.keys.span().begin());
  std::copy(message.counts.begin(), message.counts.end(), written.counts.span().begin());
  Array<int64_t> words(NumMessageWords(written), -7);
  WriteMessage(written, words.span());
  return words;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_KEY_MESSAGE_TESTING_H_
