// Reads the serialized bytes of a message by the rules of stock's parser, where they differ from
// what one would expect:
//
//   * a varint has up to 10 bytes; bits above those of its type are dropped: a length of 2^32 + 1
//     is 1;
//   * a length that goes behind the end limits nothing: what is read ends where the outer one does;
//   * a tag that is expected has one byte; other tags are varints.
//
// Source: the documented behaviour of protobuf's CodedInputStream over an array, compared with
// tf.io.parse_example (tests/parsing).

#ifndef FUSED_EMBEDDING_CORE_INPUT_WIRE_READER_H_
#define FUSED_EMBEDDING_CORE_INPUT_WIRE_READER_H_

#include <cstdint>
#include <limits>
#include <string_view>

#include "tf_ops/core/input/example_lists.h"

namespace fused_embedding {

class WireReader {
 public:
  explicit WireReader(std::string_view bytes)
      : data_(reinterpret_cast<const uint8_t*>(bytes.data())), limit_(data_ + bytes.size()) {}

  const uint8_t* data() const { return data_; }
  int64_t num_left() const { return limit_ - data_; }
  bool IsAtEnd() const { return data_ == limit_; }

  // Sets an inner limit and returns the outer one, which SetLimit restores.
  const uint8_t* LimitTo(uint32_t length) {
    const uint8_t* outer = limit_;
    if (int64_t{length} < num_left()) limit_ = data_ + length;
    return outer;
  }
  void SetLimit(const uint8_t* limit) { limit_ = limit; }

  // The next byte, if it is this one.
  bool Take(uint8_t byte) {
    if (IsAtEnd() || *data_ != byte) return false;
    ++data_;
    return true;
  }
  bool NextIs(uint8_t byte) const { return !IsAtEnd() && *data_ == byte; }

  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int i = 0; i < kMaxVarintBytes; ++i) {
      if (IsAtEnd()) return false;
      const uint8_t byte = *data_++;
      *value |= uint64_t{byte & 0x7fu} << (7 * i);
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool ReadLength(uint32_t* length) {
    uint64_t value = 0;
    if (!ReadVarint(&value)) return false;
    *length = static_cast<uint32_t>(value);
    return true;
  }

  bool Skip(int64_t num_bytes) {
    if (num_bytes > num_left()) return false;
    data_ += num_bytes;
    return true;
  }

  // A length and as many bytes.
  bool ReadBytes(std::string_view* bytes) {
    uint32_t length = 0;
    if (!ReadLength(&length) || int64_t{length} > num_left()) return false;
    *bytes = {reinterpret_cast<const char*>(data_), length};
    data_ += length;
    return true;
  }

  // The content of a field of another number. A group is no field.
  bool SkipField() {
    uint32_t tag = 0, length = 0;
    if (!ReadLength(&tag)) return false;
    uint64_t ignored = 0;
    switch (tag & 7) {
      case 0:
        return ReadVarint(&ignored);
      case 1:
        return Skip(sizeof(uint64_t));
      case 2:
        if (!ReadLength(&length)) return false;
        // A length behind the end skips all there is; one that is negative as int32 nothing.
        if (length <= uint32_t{std::numeric_limits<int32_t>::max()} && !Skip(length)) {
          data_ = limit_;
        }
        return true;
      case 5:
        return Skip(sizeof(uint32_t));
      default:
        return false;
    }
  }

 private:
  const uint8_t* data_;
  const uint8_t* limit_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_WIRE_READER_H_
