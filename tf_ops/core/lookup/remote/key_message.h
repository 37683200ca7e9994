// What a worker asks of a server: the distinct keys of each part of a table there, in one message.
//
//   words [format, step, number of parts, number of keys of each part, keys of part after part,
//          two counts a word]
//   parts [[7, 3], [9]], counts [1, 2, 5], step 4
//   words [format, 4, 2, 2, 1, 7, 3, 9, 1 + (2 << 32), 5]
//
// Counts say how often the keys occur in the batch. Only tables that count have them.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_KEY_MESSAGE_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_KEY_MESSAGE_H_

#include <cstdint>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// The number of words of a message.
int64_t NumMessageWords(int64_t num_parts, int64_t num_keys, bool has_counts);

struct MessageHeader {
  int64_t step = -1;             // of rows found or made; negative: each table's own counter
  Span<const int64_t> num_keys;  // [num_parts]
  bool has_counts = false;
};

// Writes all of `words` but the keys, and returns where those go, part after part.
Span<int64_t> WriteMessage(const MessageHeader& header, Span<const int32_t> counts,
                           Span<int64_t> words);

struct KeyMessage {
  MessageHeader header;
  Span<const int64_t> keys;  // of all parts
  Buffer<int32_t> counts;    // as many, or none
};

// Reads a message for `num_parts` parts. InvalidArgument says what a message of another format, or
// one that is no message, has instead.
Status ReadMessage(Span<const int64_t> words, int64_t num_parts, bool has_counts,
                   KeyMessage* message);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_KEY_MESSAGE_H_
