// What a worker asks of a server: the distinct keys of each part of a table there, in one message.
//
//   words [format, step, number of parts, number of keys of each part, keys of part after part,
//          counts of all keys]
//
// Keys and counts are packed: a key takes 4 or 8 bytes, a count 1, 2 or 4, as few as all of a
// message fit in. The format says how many. Both lists begin with a word.
//
//   parts [[7, 3], [9]], counts [1, 2, 5], step 4
//   words [format, 4, 2, 2, 1, 7 + (3 << 32), 9, 1 + (2 << 8) + (5 << 16)]

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_KEY_MESSAGE_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_KEY_MESSAGE_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

struct KeyMessage {
  int64_t step = -1;              // of rows found or made; negative: each table's own counter
  std::vector<int64_t> num_keys;  // of each part
  bool has_counts = false;        // only tables that count have them
  Buffer<int64_t> keys;           // part after part
  Buffer<int32_t> counts;         // as many, or none: how often a key occurs in the batch

  // Makes room for the keys that `num_keys` says, and for their counts.
  Status Allocate();
};

// The number of words of a message.
int64_t NumMessageWords(const KeyMessage& message);

// Writes a message, of `NumMessageWords`.
void WriteMessage(const KeyMessage& message, Span<int64_t> words);

// Reads a message for `num_parts` parts. InvalidArgument says what a message of another format, or
// one that is no message, has instead.
Status ReadMessage(Span<const int64_t> words, int64_t num_parts, bool has_counts,
                   KeyMessage* message);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_KEY_MESSAGE_H_
