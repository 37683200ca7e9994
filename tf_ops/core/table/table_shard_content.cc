// What a shard holds, beside lookups: erasing, expiry, slots, copies.

#include <algorithm>
#include <cstring>
#include <utility>

#include "tf_ops/core/table/table_shard.h"
#include "tf_ops/core/table/value_bytes.h"

namespace fused_embedding {

int64_t TableShard::Erase(const ShardKeys& keys) {
  int64_t num_erased = 0;
  for (int64_t begin = 0; begin < keys.n; begin += kGroup) {
    ShardKeyGroup group(keys, begin);
    rows_.FindGroup(int64_t{sizeof(RowHeader)}, &group);
    for (int64_t i = 0; i < group.n; ++i) {
      const bool is_found = rows_.IsRowOf(group.numbers[i], group.keys[i]);  // not twice
      if (is_found) EraseRow(group.numbers[i]);
      num_erased += is_found;
      if (is_found || filtered_.size() == 0) continue;
      const uint32_t filtered = filtered_.Find(group.keys[i], group.hashes[i]);
      if (filtered != kNoRow) filtered_.Erase(filtered);
    }
  }
  statistics_.index_probes += keys.n;
  statistics_.erasures += num_erased;
  return num_erased;
}

bool IsExpired(const RowLayout& layout, const char* row, const Expiry& in) {
  if (in.IsOld(reinterpret_cast<const RowHeader*>(row)->version)) return true;
  return in.needs_norms() &&
         in.IsSmall(SquaredNorm(layout.value_type, row + layout.value_offset(), layout.dim));
}

int64_t TableShard::Expire(const Expiry& in) {
  int64_t num_expired = 0;
  rows_.ForEach([&](uint32_t row) {
    if (!IsExpired(layout_, rows_.row(row), in)) return;
    EraseRow(row);
    ++num_expired;
  });
  filtered_.ForEach([&](uint32_t row) {
    if (in.IsOld(filtered_.header(row)->version)) filtered_.Erase(row);
  });
  statistics_.expirations += num_expired;
  return num_expired;
}

int64_t TableShard::ExpireKeys(const ShardKeys& keys, const Expiry& in) {
  int64_t num_expired = 0;
  for (int64_t i = 0; i < keys.n; ++i) {
    const uint32_t row = rows_.Find(keys.keys[keys.positions[i]], keys.hashes[i]);
    if (row == kNoRow || !IsExpired(layout_, rows_.row(row), in)) continue;
    EraseRow(row);
    ++num_expired;
  }
  statistics_.expirations += num_expired;
  return num_expired;
}

void TableShard::Clear() {
  // Nothing is allocated, so nothing can fail: without slots both only get shorter.
  layout_.slots.clear();
  new_row_.resize(static_cast<size_t>(layout_.row_bytes() - layout_.value_offset() - value_bytes_));
  evictions_.Clear();
  rows_.Clear(layout_.row_bytes());
  filtered_.Clear(int64_t{sizeof(RowHeader)});
  bloom_.Clear();
  if (tier_ == nullptr) return;
  *tier_->num_leaving -= tier_->waiting.size() + tier_->writing.size();
  tier_->waiting.Clear(layout_.row_bytes());
  tier_->writing.Clear(layout_.row_bytes());
  tier_->num_cold = 0;
}

Status TableShard::AddSlots(const std::vector<Slot>& slots) {
  if (slots.empty()) return Status();
  RowLayout layout = layout_;
  layout.slots.insert(layout.slots.end(), slots.begin(), slots.end());
  std::vector<char> new_row = BytesBehindValue(layout);
  const int64_t kept_bytes =
      layout_.slots_offset() + layout_.slot_width() * layout_.slot_number_bytes();
  const char* added = new_row.data() + (kept_bytes - layout_.value_offset() - value_bytes_);
  FE_RETURN_IF_ERROR(rows_.slab().Resize(layout.row_bytes(), [&](const char* from, char* to) {
    CopyBytes(from, kept_bytes, to);
    CopyBytes(added, layout.row_bytes() - kept_bytes, to + kept_bytes);
  }));
  layout_ = std::move(layout);
  new_row_ = std::move(new_row);
  return Status();
}

// --- Refusals ---

// Of (key, count) pairs of keys without a row. Takes back what it adds to the Bloom filter.
int64_t TableShard::CountAdmitted(std::vector<std::pair<int64_t, int64_t>> keys,
                                  int64_t min_frequency) {
  const bool is_bloom = table_.admission.kind == AdmissionKind::kBloom;
  const Span<const char> bytes = bloom_bytes();
  const std::vector<char> counters(bytes.begin(), bytes.end());
  std::stable_sort(keys.begin(), keys.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t num_admitted = 0;
  for (size_t i = 0; i < keys.size();) {
    const int64_t key = keys[i].first;
    const uint64_t hash = rows_.Hash(key);
    const uint32_t filtered = filtered_.Find(key, hash);
    int64_t frequency = filtered == kNoRow ? 0 : int64_t{filtered_.header(filtered)->frequency};
    for (; i < keys.size() && keys[i].first == key; ++i) {
      frequency = is_bloom ? bloom_.Add(hash, keys[i].second) : frequency + keys[i].second;
    }
    num_admitted += IsAdmitted(frequency, min_frequency);
  }
  if (is_bloom) static_cast<void>(bloom_.Restore({counters.data(), bytes.size}));
  return num_admitted;
}

int64_t TableShard::CountRefusals(const ShardKeys& keys, const Occurrences* occurrences) {
  if (!is_bounded()) return 0;
  std::vector<std::pair<int64_t, int64_t>> missing;
  std::vector<uint32_t> found;
  for (int64_t begin = 0; begin < keys.n; begin += kGroup) {
    ShardKeyGroup group(keys, begin);
    rows_.FindGroup(int64_t{sizeof(RowHeader)}, &group);
    for (int64_t i = 0; i < group.n; ++i) {
      if (group.numbers[i] != kNoRow) {
        found.push_back(group.numbers[i]);
        continue;
      }
      const int64_t position = group.positions[i];
      missing.emplace_back(group.keys[i], occurrences ? occurrences->count(position) : 0);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  const bool is_evicting = table_.eviction != EvictionPolicy::kNone;
  const int64_t num_kept = is_evicting ? static_cast<int64_t>(found.size()) : rows_.size();
  const int64_t room = config_.max_capacity - num_kept;
  int64_t num_wanted = static_cast<int64_t>(missing.size());
  if (num_wanted <= room) return 0;
  if (occurrences != nullptr) {
    num_wanted = CountAdmitted(std::move(missing), occurrences->min_frequency);
  } else {
    std::sort(missing.begin(), missing.end());
    num_wanted = std::unique(missing.begin(), missing.end()) - missing.begin();
  }
  const int64_t num_refused = std::max<int64_t>(0, num_wanted - room);
  statistics_.refusals += num_refused;
  return num_refused;
}

// --- Snapshots ---

void TableShard::CopyRows(RowLayout* layout, size_t begin, std::vector<char>* rows) const {
  *layout = layout_;
  if (tier_ != nullptr) return rows->resize(begin);
  const int64_t row_bytes = layout_.row_bytes();
  if (rows->size() < begin + rows_bytes()) rows->resize(begin + rows_bytes());
  char* next = rows->data() + begin;
  rows_.ForEach([&](uint32_t row) {
    CopyBytes(rows_.row(row), row_bytes, next);
    next += row_bytes;
  });
  rows->resize(begin + rows_bytes());
}

void TableShard::CopyFiltered(FilteredKeys* filtered) const {
  filtered_.ForEach([&](uint32_t row) { filtered->Add(*filtered_.header(row)); });
}

void TableShard::StartChanges() {
  rows_.changes().Start(rows_.slab().num_rows());
  filtered_.changes().Start(filtered_.slab().num_rows());
  bloom_.changes().Start(bloom_.num_lines());
}

void TableShard::ForgetCollected() {
  rows_.changes().Forget();
  filtered_.changes().Forget();
  bloom_.changes().Forget();
}

bool TableShard::CopyChanges(ShardCopy* copy) {
  for (ChangeLog* log : {&rows_.changes(), &filtered_.changes(), &bloom_.changes()}) {
    log->Collect();
    if (!log->is_on()) return false;
    copy->removed.insert(copy->removed.end(), log->removed().begin(), log->removed().end());
  }
  copy->layout = layout_;
  const int64_t row_bytes = layout_.row_bytes();
  copy->rows.resize(static_cast<size_t>(rows_.changes().num_changed() * row_bytes));
  char* next = copy->rows.data();
  rows_.changes().ForEachChanged([&](uint32_t row) {
    CopyBytes(rows_.row(row), row_bytes, next);
    next += row_bytes;
  });
  filtered_.changes().ForEachChanged(
      [&](uint32_t row) { copy->filtered.Add(*filtered_.header(row)); });
  bloom_.changes().ForEachChanged([&](uint32_t line) {
    BloomLine changed{config_.number * bloom_.num_lines() + line, {}};
    std::memcpy(changed.counters, bloom_.bytes().data + line * int64_t{sizeof(changed.counters)},
                sizeof(changed.counters));
    copy->bloom_lines.push_back(changed);
  });
  return true;
}

Status TableShard::RestoreFiltered(const ShardKeys& keys, const FilteredKeys& filtered) {
  FE_RETURN_IF_ERROR(filtered_.Reserve(keys.n));
  for (int64_t i = 0; i < keys.n; ++i) {
    const int64_t position = keys.positions[i];
    const int64_t key = keys.keys[position];
    if (rows_.Find(key, keys.hashes[i]) != kNoRow) continue;
    uint32_t row = filtered_.Find(key, keys.hashes[i]);
    if (row == kNoRow) row = filtered_.Insert(key, keys.hashes[i]);
    const size_t p = static_cast<size_t>(position);
    *filtered_.header(row) = {key, filtered.frequencies[p], SaturatedVersion(filtered.versions[p])};
    filtered_.Change(row);
  }
  return Status();
}

Span<const char> TableShard::bloom_bytes() const {
  if (table_.admission.kind != AdmissionKind::kBloom) return {};
  return bloom_.bytes();
}

}  // namespace fused_embedding
