#include "tf_ops/core/checkpoint/format.h"

#include <cstring>
#include <type_traits>
#include <utility>

namespace fused_embedding {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

class Encoder {
 public:
  template <typename T>
  void Number(T number) {
    static_assert(sizeof(T) == 8);
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  template <typename E>
  void Enum(E value) {
    Number(static_cast<int64_t>(value));
  }
  void String(const std::string& text) {
    Number(static_cast<int64_t>(text.size()));
    bytes_ += text;
  }
  std::string bytes() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads zeros past the end, and remembers that it did.
class Decoder {
 public:
  explicit Decoder(Span<const char> bytes) : bytes_(bytes) {}

  template <typename T>
  void Number(T* number) {
    static_assert(sizeof(T) == 8);
    *number = T{};
    if (Skip(sizeof(T))) std::memcpy(number, bytes_.data + position_ - sizeof(T), sizeof(T));
  }
  // Values from 0 to `last`.
  template <typename E>
  void Enum(E last, E* value) {
    int64_t number;
    Number(&number);
    if (number < 0 || number > static_cast<int64_t>(last)) {
      is_good_ = false;
      number = 0;
    }
    *value = static_cast<E>(number);
  }
  void String(std::string* text) {
    int64_t size;
    Number(&size);
    if (Skip(size)) text->assign(bytes_.data + position_ - size, static_cast<size_t>(size));
  }
  int64_t left() const { return bytes_.size - position_; }
  bool is_good() const { return is_good_; }
  Status Finish(const char* what) const {
    if (is_good_ && left() == 0) return Status();
    return DataLoss("its ", what, " cannot be read");
  }

 private:
  bool Skip(int64_t size) {
    is_good_ = is_good_ && size >= 0 && size <= left();
    if (is_good_) position_ += size;
    return is_good_;
  }

  Span<const char> bytes_;
  int64_t position_ = 0;
  bool is_good_ = true;
};

}  // namespace

std::string EncodeTable(const TableHeader& header) {
  Encoder out;
  out.Enum(header.value_type);
  out.Number(header.dim);
  out.Enum(header.initializer.kind);
  out.Number(header.initializer.a);
  out.Number(header.initializer.b);
  out.Number(header.initializer.seed);
  out.Number(header.matrix_bytes);
  out.Enum(header.admission.kind);
  out.Number(header.admission.min_frequency);
  out.Number(header.admission.bloom_counters);
  out.Number(header.admission.bloom_hashes);
  out.Number(header.num_shards);
  out.Number(header.hash_seed);
  out.Number(header.step);
  return out.bytes();
}

Status DecodeTable(Span<const char> payload, TableHeader* header) {
  Decoder in(payload);
  in.Enum(ValueType::kBFloat16, &header->value_type);
  in.Number(&header->dim);
  in.Enum(InitializerKind::kMatrix, &header->initializer.kind);
  in.Number(&header->initializer.a);
  in.Number(&header->initializer.b);
  in.Number(&header->initializer.seed);
  in.Number(&header->matrix_bytes);
  in.Enum(AdmissionKind::kBloom, &header->admission.kind);
  in.Number(&header->admission.min_frequency);
  in.Number(&header->admission.bloom_counters);
  in.Number(&header->admission.bloom_hashes);
  in.Number(&header->num_shards);
  in.Number(&header->hash_seed);
  in.Number(&header->step);
  return in.Finish("description of the table");
}

std::string EncodeLink(const Link& link) {
  Encoder out;
  out.Number(link.name);
  out.Number(link.continues);
  return out.bytes();
}

Status DecodeLink(Span<const char> payload, Link* link) {
  Decoder in(payload);
  in.Number(&link->name);
  in.Number(&link->continues);
  return in.Finish("place in a series of saves");
}

std::string EncodeSlots(const std::vector<Slot>& slots) {
  Encoder out;
  for (const Slot& slot : slots) {
    out.String(slot.name);
    out.Number(slot.width);
    out.Number(slot.initial);
  }
  return out.bytes();
}

Status DecodeSlots(Span<const char> payload, std::vector<Slot>* slots) {
  // The bytes of a row must not overflow.
  constexpr int64_t kMaxWidths = int64_t{1} << 40;
  Decoder in(payload);
  int64_t sum = 0;
  slots->clear();
  while (in.is_good() && in.left() > 0) {
    Slot slot;
    in.String(&slot.name);
    in.Number(&slot.width);
    in.Number(&slot.initial);
    const bool is_legal =
        slot.width >= 1 && slot.width <= kMaxDim && slot.width <= kMaxWidths - sum;
    if (in.is_good() && !is_legal) return DataLoss("a slot has a bad width");
    sum += slot.width;
    slots->push_back(std::move(slot));
  }
  return in.Finish("description of the slots");
}

std::string EncodeColdFile(const ColdFile& file) {
  Encoder out;
  out.String(file.name);
  out.String(file.suffix);
  out.String(file.bytes);
  return out.bytes();
}

Status DecodeColdFile(Span<const char> payload, ColdFile* file) {
  *file = ColdFile();
  Decoder in(payload);
  in.String(&file->name);
  in.String(&file->suffix);
  in.String(&file->bytes);
  return in.Finish("file of a cold store");
}

std::string EncodeTotals(const Totals& totals) {
  Encoder out;
  out.Number(totals.num_rows);
  out.Number(totals.num_filtered);
  out.Number(totals.matrix_bytes);
  out.Number(totals.bloom_bytes);
  out.Number(totals.num_removed);
  return out.bytes();
}

Status DecodeTotals(Span<const char> payload, Totals* totals) {
  Decoder in(payload);
  in.Number(&totals->num_rows);
  in.Number(&totals->num_filtered);
  in.Number(&totals->matrix_bytes);
  in.Number(&totals->bloom_bytes);
  totals->num_removed = 0;
  if (in.left() > 0) in.Number(&totals->num_removed);  // version 1 has it not
  return in.Finish("totals");
}

}  // namespace fused_embedding
