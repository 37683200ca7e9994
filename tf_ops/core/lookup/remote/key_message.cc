#include "tf_ops/core/lookup/remote/key_message.h"

#include <algorithm>
#include <cstring>

namespace fused_embedding {
namespace {

// "FEkeys" in the upper bytes; then the bytes of a count, those of a key, and the version.
constexpr int64_t kMessageMagic = 0x46456B6579730000;
constexpr int64_t kMessageMagicMask = ~int64_t{0xFFFF};
constexpr int64_t kVersion = 2;
constexpr int64_t kVersionMask = 0xFF;
constexpr int kKeyBytesShift = 8;
constexpr int kCountBytesShift = 12;

constexpr int64_t kFormatWord = 0;
constexpr int64_t kStepWord = 1;
constexpr int64_t kPartsWord = 2;
constexpr int64_t kHeaderWords = 3;
constexpr int64_t kWordBytes = 8;

constexpr char kAdvice[] = "; workers and servers must run the same version of fused_embedding";

// The words that so many numbers take.
int64_t NumWords(int64_t numbers, int64_t bytes) {
  return (numbers * bytes + kWordBytes - 1) / kWordBytes;
}

// How keys and counts are packed.
struct Packing {
  int64_t key_bytes = 8;
  int64_t count_bytes = 0;  // 0: a message without counts

  int64_t format() const {
    return kMessageMagic | count_bytes << kCountBytesShift | key_bytes << kKeyBytesShift | kVersion;
  }
  int64_t num_key_words(int64_t num_keys) const { return NumWords(num_keys, key_bytes); }
  int64_t num_words(int64_t num_parts, int64_t num_keys) const {
    return kHeaderWords + num_parts + num_key_words(num_keys) + NumWords(num_keys, count_bytes);
  }
};

// All bits that are set in any of the numbers.
template <typename T>
uint64_t BitsOf(Span<const T> numbers) {
  uint64_t bits = 0;
  for (const T number : numbers) bits |= static_cast<uint64_t>(number);
  return bits;
}

Packing PackingOf(const KeyMessage& message) {
  Packing packing;
  packing.key_bytes = BitsOf(message.keys.span()) >> 32 == 0 ? 4 : 8;
  if (!message.has_counts) return packing;
  const uint64_t bits = BitsOf(message.counts.span());
  packing.count_bytes = bits >> 8 == 0 ? 1 : bits >> 16 == 0 ? 2 : 4;
  return packing;
}

// The type of a packed number is unsigned, so that the numbers without a sign are those that fit.
template <typename Packed, typename T>
void Pack(Span<const T> numbers, int64_t* words) {
  if (numbers.size == 0) return;
  words[NumWords(numbers.size, sizeof(Packed)) - 1] = 0;  // they may fill a part of it only
  char* to = reinterpret_cast<char*>(words);
  for (int64_t i = 0; i < numbers.size; ++i) {
    const Packed packed = static_cast<Packed>(numbers[i]);
    std::memcpy(to + i * int64_t{sizeof(Packed)}, &packed, sizeof(Packed));
  }
}

template <typename Packed, typename T>
void Unpack(const int64_t* words, Span<T> numbers) {
  const char* from = reinterpret_cast<const char*>(words);
  for (int64_t i = 0; i < numbers.size; ++i) {
    Packed packed;
    std::memcpy(&packed, from + i * int64_t{sizeof(Packed)}, sizeof(Packed));
    numbers[i] = static_cast<T>(packed);
  }
}

// Calls `of(Packed{})` with the type of that many bytes.
template <typename Of>
void WithPacked(int64_t bytes, const Of& of) {
  if (bytes == 1) of(uint8_t{});
  if (bytes == 2) of(uint16_t{});
  if (bytes == 4) of(uint32_t{});
  if (bytes == 8) of(uint64_t{});
}

Status ReadPacking(int64_t format, bool has_counts, Packing* packing) {
  if ((format & kMessageMagicMask) != kMessageMagic) {
    return InvalidArgument("message does not start as one of keys does", kAdvice);
  }
  if ((format & kVersionMask) != kVersion) {
    return InvalidArgument("message has format ", format & kVersionMask, ", but this op reads ",
                           kVersion, kAdvice);
  }
  *packing = {format >> kKeyBytesShift & 0xF, format >> kCountBytesShift & 0xF};
  const auto is_one_of = [](int64_t bytes, std::initializer_list<int64_t> possible) {
    return std::find(possible.begin(), possible.end(), bytes) != possible.end();
  };
  if (!is_one_of(packing->key_bytes, {4, 8}) || !is_one_of(packing->count_bytes, {0, 1, 2, 4})) {
    return InvalidArgument("message has keys of ", packing->key_bytes, " bytes and counts of ",
                           packing->count_bytes, kAdvice);
  }
  if ((packing->count_bytes > 0) == has_counts) return Status();
  return InvalidArgument("message has ", has_counts ? "no counts" : "counts",
                         " of keys, but the tables of this op need ", has_counts ? "them" : "none",
                         kAdvice);
}

// Reads the number of keys of each part; those of all are at most 2 a word.
Status ReadSizes(Span<const int64_t> words, int64_t num_parts, std::vector<int64_t>* num_keys) {
  int64_t room = 2 * words.size;
  num_keys->clear();
  for (int64_t p = 0; p < num_parts; ++p) {
    const int64_t of_part = words[kHeaderWords + p];
    if (of_part < 0 || of_part > room) {
      return InvalidArgument("message of ", words.size, " words has ", of_part,
                             " keys of one table", kAdvice);
    }
    room -= of_part;
    num_keys->push_back(of_part);
  }
  return Status();
}

}  // namespace

Status KeyMessage::Allocate() {
  int64_t total = 0;
  for (const int64_t of_part : num_keys) total += of_part;
  FE_RETURN_IF_ERROR(keys.Allocate(total));
  return has_counts ? counts.Allocate(total) : Status();
}

int64_t NumMessageWords(const KeyMessage& message) {
  return PackingOf(message).num_words(static_cast<int64_t>(message.num_keys.size()),
                                      message.keys.size());
}

void WriteMessage(const KeyMessage& message, Span<int64_t> words) {
  const Packing packing = PackingOf(message);
  const int64_t num_parts = static_cast<int64_t>(message.num_keys.size());
  words[kFormatWord] = packing.format();
  words[kStepWord] = message.step;
  words[kPartsWord] = num_parts;
  std::copy(message.num_keys.begin(), message.num_keys.end(), words.begin() + kHeaderWords);
  int64_t* keys = words.begin() + kHeaderWords + num_parts;
  WithPacked(packing.key_bytes,
             [&](auto packed) { Pack<decltype(packed)>(message.keys.span(), keys); });
  int64_t* counts = keys + packing.num_key_words(message.keys.size());
  WithPacked(packing.count_bytes,
             [&](auto packed) { Pack<decltype(packed)>(message.counts.span(), counts); });
}

Status ReadMessage(Span<const int64_t> words, int64_t num_parts, bool has_counts,
                   KeyMessage* message) {
  if (words.size < kHeaderWords + num_parts) {
    return InvalidArgument("message has ", words.size, " words, but one for ", num_parts,
                           " tables has at least ", kHeaderWords + num_parts, kAdvice);
  }
  Packing packing;
  FE_RETURN_IF_ERROR(ReadPacking(words[kFormatWord], has_counts, &packing));
  if (words[kPartsWord] != num_parts) {
    return InvalidArgument("message is for ", words[kPartsWord], " tables, but the op has ",
                           num_parts, kAdvice);
  }
  message->step = words[kStepWord];
  message->has_counts = has_counts;
  FE_RETURN_IF_ERROR(ReadSizes(words, num_parts, &message->num_keys));
  FE_RETURN_IF_ERROR(message->Allocate());
  const int64_t num_keys = message->keys.size();
  if (words.size != packing.num_words(num_parts, num_keys)) {
    return InvalidArgument("message has ", words.size, " words, but ", num_keys, " keys of ",
                           num_parts, " tables take ", packing.num_words(num_parts, num_keys),
                           kAdvice);
  }
  const int64_t* keys = words.begin() + kHeaderWords + num_parts;
  WithPacked(packing.key_bytes,
             [&](auto packed) { Unpack<decltype(packed)>(keys, message->keys.span()); });
  const int64_t* counts = keys + packing.num_key_words(num_keys);
  WithPacked(packing.count_bytes,
             [&](auto packed) { Unpack<decltype(packed)>(counts, message->counts.span()); });
  for (const int32_t count : message->counts.span()) {
    if (count < 0) return InvalidArgument("message counts a key ", count, " times", kAdvice);
  }
  return Status();
}

}  // namespace fused_embedding
