#include "tf_ops/core/lookup/remote/key_message.h"

#include <algorithm>
#include <cstring>

namespace fused_embedding {
namespace {

// "FEkeys" in the upper bytes; then whether there are counts, and the version.
constexpr int64_t kMagic = 0x46456B6579730000;
constexpr int64_t kMagicMask = ~int64_t{0xFFFF};
constexpr int64_t kVersion = 1;
constexpr int64_t kHasCounts = 0x100;

constexpr int64_t kFormatWord = 0;
constexpr int64_t kStepWord = 1;
constexpr int64_t kPartsWord = 2;
constexpr int64_t kHeaderWords = 3;

constexpr char kAdvice[] = "; workers and servers must run the same version of fused_embedding";

int64_t NumCountWords(int64_t num_keys, bool has_counts) {
  return has_counts ? (num_keys + 1) / 2 : 0;
}

Status CheckFormat(int64_t format, bool has_counts) {
  const int64_t wanted = kMagic | (has_counts ? kHasCounts : 0) | kVersion;
  if (format == wanted) return Status();
  if ((format & kMagicMask) != kMagic) {
    return InvalidArgument("message does not start as one of keys does", kAdvice);
  }
  return InvalidArgument("message has format ", format & ~kMagicMask, ", but this op reads ",
                         wanted & ~kMagicMask, kAdvice);
}

}  // namespace

int64_t NumMessageWords(int64_t num_parts, int64_t num_keys, bool has_counts) {
  return kHeaderWords + num_parts + num_keys + NumCountWords(num_keys, has_counts);
}

Span<int64_t> WriteMessage(const MessageHeader& header, Span<const int32_t> counts,
                           Span<int64_t> words) {
  const int64_t num_parts = header.num_keys.size;
  words[kFormatWord] = kMagic | (header.has_counts ? kHasCounts : 0) | kVersion;
  words[kStepWord] = header.step;
  words[kPartsWord] = num_parts;
  std::copy(header.num_keys.begin(), header.num_keys.end(), words.begin() + kHeaderWords);
  int64_t num_keys = 0;
  for (const int64_t of_part : header.num_keys) num_keys += of_part;
  const Span<int64_t> keys = {words.data + kHeaderWords + num_parts, num_keys};
  if (header.has_counts && num_keys > 0) {
    words[words.size - 1] = 0;  // half of it may hold no count
    std::memcpy(keys.end(), counts.data, static_cast<size_t>(num_keys) * sizeof(int32_t));
  }
  return keys;
}

Status ReadMessage(Span<const int64_t> words, int64_t num_parts, bool has_counts,
                   KeyMessage* message) {
  if (words.size < kHeaderWords + num_parts) {
    return InvalidArgument("message has ", words.size, " words, but one for ", num_parts,
                           " tables has at least ", kHeaderWords + num_parts, kAdvice);
  }
  FE_RETURN_IF_ERROR(CheckFormat(words[kFormatWord], has_counts));
  if (words[kPartsWord] != num_parts) {
    return InvalidArgument("message is for ", words[kPartsWord], " tables, but the op has ",
                           num_parts, kAdvice);
  }
  message->header = {words[kStepWord], {words.data + kHeaderWords, num_parts}, has_counts};
  int64_t num_keys = 0;
  for (const int64_t of_part : message->header.num_keys) {
    if (of_part < 0 || of_part > words.size - num_keys) {
      return InvalidArgument("message of ", words.size, " words has ", of_part,
                             " keys of one table", kAdvice);
    }
    num_keys += of_part;
  }
  if (words.size != NumMessageWords(num_parts, num_keys, has_counts)) {
    return InvalidArgument("message has ", words.size, " words, but ", num_keys, " keys of ",
                           num_parts, " tables take ",
                           NumMessageWords(num_parts, num_keys, has_counts), kAdvice);
  }
  message->keys = {words.data + kHeaderWords + num_parts, num_keys};
  if (!has_counts) return Status();
  FE_RETURN_IF_ERROR(message->counts.Allocate(num_keys));
  if (num_keys == 0) return Status();
  std::memcpy(message->counts.data(), message->keys.end(),
              static_cast<size_t>(num_keys) * sizeof(int32_t));
  for (const int32_t count : message->counts.span()) {
    if (count < 0) return InvalidArgument("message counts a key ", count, " times", kAdvice);
  }
  return Status();
}

}  // namespace fused_embedding
