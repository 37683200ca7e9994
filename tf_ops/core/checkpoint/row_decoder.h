#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_ROW_DECODER_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_ROW_DECODER_H_

#include <algorithm>
#include <cstring>
#include <vector>

#include "tf_ops/core/table/embedding_table.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

// Rows of a file as a table takes them: numbers of slots in the table's order, initial values where
// the file has none.
class RowDecoder {
 public:
  RowDecoder(const RowLayout& file, const RowLayout& table)
      : file_(file), slot_width_(table.slot_width()) {
    const int64_t number_bytes = table.slot_number_bytes();
    initial_slots_.resize(static_cast<size_t>(table.slot_width() * number_bytes));
    int64_t to = 0;
    for (const Slot& slot : table.slots) {
      const int64_t bytes = slot.width * number_bytes;
      const int64_t from = OffsetInFile(slot);
      if (from >= 0) copies_.push_back({from, to, bytes});
      for (int64_t i = 0; i < slot.width; ++i) {
        char* number = initial_slots_.data() + to + i * number_bytes;
        const auto as_float = static_cast<float>(slot.initial);
        if (number_bytes == 8) std::memcpy(number, &slot.initial, sizeof(slot.initial));
        if (number_bytes == 4) std::memcpy(number, &as_float, sizeof(as_float));
      }
      to += bytes;
    }
  }

  void Add(const char* row) {
    const RowHeader header = HeaderAt(row);
    keys_.push_back(header.key);
    frequencies_.push_back(header.frequency);
    versions_.push_back(header.version);
    const char* value = row + file_.value_offset();
    values_.insert(values_.end(), value, value + file_.value_bytes());
    const size_t slots = slots_.size();
    slots_.insert(slots_.end(), initial_slots_.begin(), initial_slots_.end());
    for (const Copy& copy : copies_) {
      std::memcpy(slots_.data() + slots + copy.to, row + copy.from,
                  static_cast<size_t>(copy.bytes));
    }
  }

  void Clear() {
    keys_.clear();
    frequencies_.clear();
    versions_.clear();
    values_.clear();
    slots_.clear();
  }

  EmbeddingTable::Content content() const {
    const auto n = static_cast<int64_t>(keys_.size());
    EmbeddingTable::Content content;
    content.keys = {keys_.data(), n};
    content.values = values_.data();
    content.slots = slots_.data();
    content.slot_width = slot_width_;
    content.frequencies = {frequencies_.data(), n};
    content.versions = {versions_.data(), n};
    return content;
  }

 private:
  struct Copy {
    int64_t from;  // in a row of the file
    int64_t to;    // in the slots of a row of the table
    int64_t bytes;
  };

  int64_t OffsetInFile(const Slot& wanted) const {
    int64_t offset = file_.slots_offset();
    for (const Slot& slot : file_.slots) {
      if (slot == wanted) return offset;
      offset += slot.width * file_.slot_number_bytes();
    }
    return -1;
  }

  const RowLayout& file_;
  int64_t slot_width_;  // of the table
  std::vector<Copy> copies_;
  std::vector<char> initial_slots_;  // of a row
  std::vector<int64_t> keys_, frequencies_, versions_;
  std::vector<char> values_, slots_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_ROW_DECODER_H_
