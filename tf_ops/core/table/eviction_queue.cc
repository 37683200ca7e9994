#include "tf_ops/core/table/eviction_queue.h"

#include <algorithm>
#include <new>

namespace fused_embedding {
namespace {

constexpr int64_t kWordBits = 64;

uint64_t Bit(uint32_t row) { return uint64_t{1} << (row % kWordBits); }

}  // namespace

void EvictionQueue::StartBatch(const KeyedRows& rows, int64_t num_keys) {
  const size_t num_rows = static_cast<size_t>(rows.slab().num_rows() + num_keys);
  if (num_rows / kWordBits >= pins_.size()) pins_.resize(2 * num_rows / kWordBits + 1);
  pinned_.reserve(static_cast<size_t>(num_keys));
  if (rows.size() <= kExactRows) victims_.clear();
}

void EvictionQueue::Pin(uint32_t row) {
  pins_[row / kWordBits] |= Bit(row);
  pinned_.push_back(row);
}

bool EvictionQueue::IsPinned(uint32_t row) const {
  return (pins_[row / kWordBits] & Bit(row)) != 0;
}

void EvictionQueue::EndBatch() {
  for (const uint32_t row : pinned_) pins_[row / kWordBits] = 0;
  pinned_.clear();
}

void EvictionQueue::Clear() {
  EndBatch();
  victims_.clear();
}

uint64_t EvictionQueue::Score(const RowHeader& header) const {
  const uint64_t version = header.version;
  const uint64_t frequency = header.frequency;
  return by_frequency_ ? frequency << 32 | version : version << 32 | frequency;
}

uint32_t EvictionQueue::Next(const KeyedRows& rows, int64_t num_wanted) {
  const uint32_t row = NextKept(rows);
  if (row != kNoRow) return row;
  try {
    Fill(rows, num_wanted);
  } catch (const std::bad_alloc&) {
    return kNoRow;
  }
  return NextKept(rows);
}

// The next one that was not used since it was found.
uint32_t EvictionQueue::NextKept(const KeyedRows& rows) {
  while (!victims_.empty()) {
    const Victim victim = victims_.back();
    victims_.pop_back();
    const bool is_unused = rows.slab().IsAlive(victim.row) && !IsPinned(victim.row) &&
                           Score(*rows.header(victim.row)) == victim.score;
    if (is_unused) return victim.row;
  }
  return kNoRow;
}

void EvictionQueue::Fill(const KeyedRows& rows, int64_t num_wanted) {
  constexpr int64_t kShareOfRows = 8;  // an eviction then costs a glance at 8 rows
  std::vector<Victim> found;
  found.reserve(static_cast<size_t>(rows.size()));
  rows.ForEach([&](uint32_t row) {
    if (!IsPinned(row)) found.push_back({Score(*rows.header(row)), row});
  });
  // Ties by row number, so that a run can be repeated.
  const auto is_later = [](const Victim& a, const Victim& b) {
    return a.score != b.score ? a.score > b.score : a.row > b.row;
  };
  const int64_t size = static_cast<int64_t>(found.size());
  const int64_t kept = std::min(size, std::max(num_wanted, rows.size() / kShareOfRows));
  const auto first = found.end() - kept;
  std::nth_element(found.begin(), first, found.end(), is_later);
  std::sort(first, found.end(), is_later);
  victims_.assign(first, found.end());
}

}  // namespace fused_embedding
