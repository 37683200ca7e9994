#include "tf_ops/core/table/table_shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tf_ops/core/table/initializer.h"
#include "tf_ops/core/table/value_bytes.h"

namespace fused_embedding {
namespace {

// What a search gives for a key without a row, beside row numbers.
constexpr uint32_t kNotAdmitted = kNoRow;
constexpr uint32_t kRefused = kNoRow - 1;

}  // namespace

// A key that has no row yet.
struct TableShard::Arrival {
  int64_t key;
  uint64_t hash;
  int64_t count;
  uint32_t version;
  int64_t min_frequency;  // < 0: the admission filter's
};

TableShard::TableShard(const TableConfig& table, const ShardConfig& config)
    : table_(table),
      config_(config),
      layout_(table.layout),
      value_bytes_(layout_.value_bytes()),
      new_row_(BytesBehindValue(layout_)),
      no_permission_(static_cast<size_t>(value_bytes_)),
      rows_(config.hash_key, config.max_load, layout_.row_bytes()),
      filtered_(config.hash_key, config.max_load, int64_t{sizeof(RowHeader)}),
      evictions_(table.eviction == EvictionPolicy::kLfu) {
  FillValues(layout_.value_type, table.no_permission_value, layout_.dim, no_permission_.data());
}

Status TableShard::Init() {
  FE_RETURN_IF_ERROR(rows_.Init());
  FE_RETURN_IF_ERROR(filtered_.Init());
  const AdmissionConfig& admission = table_.admission;
  if (admission.kind != AdmissionKind::kBloom) return Status();
  return CountingBloomFilter::Create(config_.bloom_counters, admission.bloom_hashes,
                                     admission.min_frequency, &bloom_);
}

TableStatistics TableShard::Statistics() const {
  TableStatistics statistics = statistics_;
  statistics.size = size();
  statistics.filtered = filtered_.size();
  statistics.memory_bytes = rows_.memory_bytes() + filtered_.memory_bytes();
  if (table_.admission.kind == AdmissionKind::kBloom) {
    statistics.memory_bytes += bloom_.memory_bytes();
  }
  if (tier_ != nullptr) {
    statistics.leaving = tier_->waiting.size() + tier_->writing.size();
    statistics.memory_bytes += tier_->waiting.memory_bytes() + tier_->writing.memory_bytes();
  }
  return statistics;
}

// --- Lookups ---

void TableShard::Touch(char* row, int64_t count, uint32_t version) {
  RowHeader* header = reinterpret_cast<RowHeader*>(row);
  header->frequency = SaturatedFrequency(int64_t{header->frequency} + count);
  header->version = version;
}

// The i-th key of the group, which has a row.
FE_INLINE void TableShard::Output(const ShardKeyGroup& group, int64_t i, LookupOutput* out) const {
  const int64_t position = group.positions[i];
  if (out->values != nullptr) {
    CopyBytes(group.rows[i] + layout_.value_offset(), value_bytes_,
              out->values + position * value_bytes_);
  }
  if (out->frequencies != nullptr) {
    out->frequencies[position] = reinterpret_cast<const RowHeader*>(group.rows[i])->frequency;
  }
  if (out->handles == nullptr) return;
  out->handles[position] = config_.number << 32 | int64_t{group.numbers[i]};
}

// Calls found(group, i) for the keys that have a row, and leaves the others in `keys`; returns
// their number. All rows are found before the first is inserted: only then is it known which of
// them a full table may not give up.
template <typename Found>
int64_t TableShard::FindAll(const ShardKeys& keys, int64_t row_bytes, const Found& found) {
  if (is_bounded()) evictions_.StartBatch(rows_, keys.n);
  int64_t num_missing = 0;
  for (int64_t begin = 0; begin < keys.n; begin += kGroup) {
    ShardKeyGroup group(keys, begin);
    rows_.FindGroup(row_bytes, &group);
    for (int64_t i = 0; i < group.n; ++i) {
      if (group.numbers[i] == kNoRow) {
        keys.hashes[num_missing] = group.hashes[i];
        keys.positions[num_missing++] = group.positions[i];
        continue;
      }
      found(group, i);
      if (is_bounded()) evictions_.Pin(group.numbers[i]);
    }
  }
  statistics_.index_probes += keys.n;
  return num_missing;
}

Status TableShard::FindOrInsert(const ShardKeys& keys, const Occurrences& occurrences,
                                LookupOutput* out) {
  const int64_t num_missing =
      FindAll(keys, layout_.value_offset() + value_bytes_, [&](const auto& group, int64_t i) {
        Touch(group.rows[i], occurrences.count(group.positions[i]), occurrences.version);
        rows_.Change(group.numbers[i]);
        Output(group, i, out);
      });
  statistics_.hits += keys.n - num_missing;
  Status status;
  for (int64_t begin = 0; begin < num_missing && status.ok(); begin += kGroup) {
    status =
        InsertMissing({keys.keys, keys.positions + begin, keys.hashes + begin, num_missing - begin},
                      occurrences, out);
  }
  if (is_bounded()) evictions_.EndBatch();
  return status;
}

// The first kGroup of the keys that were not found.
Status TableShard::InsertMissing(const ShardKeys& missing, const Occurrences& occurrences,
                                 LookupOutput* out) {
  ShardKeyGroup group(missing, 0);
  FE_RETURN_IF_ERROR(ReserveFor(group.n));
  PrefetchMissing(group, *out);
  ShardKeyGroup filtered(missing, 0);
  if (table_.admission.kind == AdmissionKind::kCounter) {
    FE_RETURN_IF_ERROR(filtered_.Reserve(group.n));
    filtered_.FindGroup(filtered_.slab().row_bytes(), &filtered);
    statistics_.index_probes += group.n;
  } else {
    std::fill_n(filtered.numbers, group.n, kNoRow);
  }
  int64_t num_new = 0;
  int64_t new_keys[kGroup];
  char* new_values[kGroup];
  int64_t frequencies[kGroup];  // of keys without a row
  for (int64_t i = 0; i < group.n; ++i) {
    const int64_t key = group.keys[i];
    const int64_t count = occurrences.count(group.positions[i]);
    group.numbers[i] = rows_.Find(key, group.hashes[i]);  // a key that is in the batch twice
    if (group.numbers[i] != kNoRow) {
      group.rows[i] = rows_.row(group.numbers[i]);
      Touch(group.rows[i], count, occurrences.version);
      rows_.Change(group.numbers[i]);
      ++statistics_.hits;
      continue;
    }
    ++statistics_.misses;
    const Arrival arrival = {key, group.hashes[i], count, occurrences.version,
                             occurrences.min_frequency};
    group.numbers[i] =
        InsertIfAdmitted(arrival, filtered.numbers[i], missing.n - i, &frequencies[i]);
    if (group.numbers[i] >= kRefused) continue;
    group.rows[i] = rows_.row(group.numbers[i]);
    if (!occurrences.first_values.empty()) {
      CopyBytes(occurrences.first_values[group.positions[i]], value_bytes_,
                group.rows[i] + layout_.value_offset());
      continue;
    }
    new_keys[num_new] = key;
    new_values[num_new++] = group.rows[i] + layout_.value_offset();
  }
  Initialize(*initializer_, layout_, new_keys, new_values, num_new);
  OutputMissing(group, frequencies, out);
  return Status();
}

void TableShard::PrefetchMissing(const ShardKeyGroup& group, const LookupOutput& out) const {
  for (int64_t i = 0; i < group.n; ++i) {
    rows_.Prefetch(group.hashes[i]);
    bloom_.Prefetch(group.hashes[i]);
    if (out.values == nullptr) continue;
    __builtin_prefetch(out.values + group.positions[i] * value_bytes_, 1);
  }
}

// `frequencies`: of the keys that still have no row.
void TableShard::OutputMissing(const ShardKeyGroup& group, const int64_t* frequencies,
                               LookupOutput* out) const {
  for (int64_t i = 0; i < group.n; ++i) {
    if (group.numbers[i] < kRefused) {
      Output(group, i, out);
      continue;
    }
    const bool is_refused = group.numbers[i] == kRefused;
    if (is_refused) ++out->num_refused;
    const int64_t position = group.positions[i];
    if (out->values != nullptr) OutputNothing(is_refused, out->values + position * value_bytes_);
    if (out->frequencies != nullptr) out->frequencies[position] = frequencies[i];
    if (out->handles != nullptr) out->handles[position] = -1;
  }
}

// What a key reads that has no row.
void TableShard::OutputNothing(bool is_refused, char* value) const {
  if (is_refused) {
    std::memset(value, 0, static_cast<size_t>(value_bytes_));
  } else {
    CopyBytes(no_permission_.data(), value_bytes_, value);
  }
}

Status TableShard::ReserveFor(int64_t num_keys) {
  const int64_t room = is_bounded() ? config_.max_capacity - rows_.size() : num_keys;
  return rows_.Reserve(std::min(num_keys, room));
}

// The occurrences of a key, this one included. `filtered`: where its count was found, or kNoRow;
// keys that are in the batch twice were counted, or admitted, since.
int64_t TableShard::CountArrival(const Arrival& arrival, uint32_t* filtered) {
  switch (table_.admission.kind) {
    case AdmissionKind::kAll:
      return arrival.count;
    case AdmissionKind::kCounter:
      if (!filtered_.IsRowOf(*filtered, arrival.key)) {
        *filtered = filtered_.Find(arrival.key, arrival.hash);
      }
      return *filtered == kNoRow ? arrival.count
                                 : arrival.count + filtered_.header(*filtered)->frequency;
    case AdmissionKind::kBloom:
      return bloom_.Add(arrival.hash, arrival.count);
  }
  return 0;
}

bool TableShard::IsAdmitted(int64_t frequency, int64_t min_frequency) const {
  return table_.admission.kind == AdmissionKind::kAll ||
         frequency >= (min_frequency < 0 ? table_.admission.min_frequency : min_frequency);
}

// Its row, kNotAdmitted or kRefused. Sets `*occurrences`, this one included.
uint32_t TableShard::InsertIfAdmitted(const Arrival& arrival, uint32_t filtered, int64_t num_left,
                                      int64_t* occurrences) {
  const int64_t frequency = CountArrival(arrival, &filtered);
  *occurrences = frequency;
  const bool is_admitted = IsAdmitted(frequency, arrival.min_frequency);
  if (is_admitted && MakeRoom(num_left)) {
    if (filtered != kNoRow) filtered_.Erase(filtered);
    ++statistics_.inserts;
    return InsertRow(arrival.key, arrival.hash, SaturatedFrequency(frequency), arrival.version);
  }
  ++(is_admitted ? statistics_.refusals : statistics_.not_admitted);
  if (table_.admission.kind == AdmissionKind::kCounter && frequency > 0) {
    if (filtered == kNoRow) filtered = filtered_.Insert(arrival.key, arrival.hash);
    *filtered_.header(filtered) = {arrival.key, SaturatedFrequency(frequency), arrival.version};
    filtered_.Change(filtered);
  }
  return is_admitted ? kRefused : kNotAdmitted;
}

// A row without a value, pinned where the table is bounded.
uint32_t TableShard::InsertRow(int64_t key, uint64_t hash, uint32_t frequency, uint32_t version) {
  const uint32_t row = rows_.Insert(key, hash);
  *rows_.header(row) = {key, frequency, version};
  CopyBytes(new_row_.data(), static_cast<int64_t>(new_row_.size()),
            rows_.row(row) + layout_.value_offset() + value_bytes_);
  if (is_bounded()) evictions_.Pin(row);
  return row;
}

// `num_left`: keys of this batch that may want a row, this one included.
bool TableShard::MakeRoom(int64_t num_left) {
  if (!is_bounded() || rows_.size() < config_.max_capacity) return true;
  if (table_.eviction == EvictionPolicy::kNone) return false;
  const uint32_t row = evictions_.Next(rows_, num_left);
  if (row == kNoRow) return false;
  rows_.Erase(row);
  ++statistics_.evictions;
  return true;
}

void TableShard::Find(const ShardKeys& keys, LookupOutput* out) {
  const int64_t read_bytes = layout_.value_offset() + value_bytes_;
  for (int64_t begin = 0; begin < keys.n; begin += kGroup) {
    ShardKeyGroup group(keys, begin);
    rows_.FindGroup(read_bytes, &group);
    int64_t num_missing = 0;
    int64_t missing[kGroup];
    char* values[kGroup];
    for (int64_t i = 0; i < group.n; ++i) {
      if (group.numbers[i] != kNoRow) {
        Output(group, i, out);
        continue;
      }
      const int64_t position = group.positions[i];
      missing[num_missing] = group.keys[i];
      values[num_missing++] = out->values + position * value_bytes_;
      if (out->handles != nullptr) out->handles[position] = -1;
    }
    if (table_.admission.kind == AdmissionKind::kAll) {
      Initialize(*initializer_, layout_, missing, values, num_missing);
    } else {
      for (int64_t i = 0; i < num_missing; ++i) {
        CopyBytes(no_permission_.data(), value_bytes_, values[i]);
      }
    }
    statistics_.hits += group.n - num_missing;
    statistics_.misses += num_missing;
  }
  statistics_.index_probes += keys.n;
}

void TableShard::ForEachRow(const ShardKeys& keys, Span<const int64_t> handles, bool is_changing,
                            const EmbeddingTable::RowBody& body) {
  const int64_t row_bytes = layout_.row_bytes();
  for (int64_t begin = 0; begin < keys.n; begin += kGroup) {
    ShardKeyGroup group(keys, begin);
    if (handles.empty()) {
      rows_.FindGroup(row_bytes, &group);
      statistics_.index_probes += group.n;
    } else {
      FindByHandles(handles, &group);
    }
    for (int64_t i = 0; i < group.n; ++i) {
      if (group.numbers[i] == kNoRow) {
        group.rows[i] = nullptr;
      } else if (is_changing) {
        rows_.Change(group.numbers[i]);
      }
    }
    body(layout_, {group.rows, group.positions, group.n});
  }
}

void TableShard::FindByHandles(Span<const int64_t> handles, ShardKeyGroup* group) {
  const int64_t row_bytes = layout_.row_bytes();
  for (int64_t i = 0; i < group->n; ++i) {
    const int64_t handle = handles[group->positions[i]];
    const bool is_here =
        handle >> 32 == config_.number && (handle & kNoRow) < rows_.slab().num_rows();
    group->numbers[i] = is_here ? static_cast<uint32_t>(handle) : kNoRow;
    if (!is_here) continue;
    group->rows[i] = rows_.row(group->numbers[i]);
    PrefetchRow(group->rows[i], row_bytes);
  }
  KeyGroup sought;
  int64_t positions[kGroup];
  uint64_t hashes[kGroup];
  sought.hashes = hashes;
  for (int64_t i = 0; i < group->n; ++i) {
    if (rows_.IsRowOf(group->numbers[i], group->keys[i])) continue;
    positions[sought.n] = i;
    hashes[sought.n] = group->hashes[i];
    sought.keys[sought.n++] = group->keys[i];
  }
  rows_.FindGroup(row_bytes, &sought);
  for (int64_t i = 0; i < sought.n; ++i) {
    group->numbers[positions[i]] = sought.numbers[i];
    group->rows[positions[i]] = sought.rows[i];
  }
  statistics_.index_probes += sought.n;
}

// --- Content ---

void TableShard::WriteContent(char* row, int64_t position, const EmbeddingTable::Content& content) {
  RowHeader* header = reinterpret_cast<RowHeader*>(row);
  if (!content.frequencies.empty()) {
    header->frequency = SaturatedFrequency(content.frequencies[position]);
  }
  if (!content.versions.empty()) header->version = SaturatedVersion(content.versions[position]);
  CopyBytes(content.values + position * value_bytes_, value_bytes_, row + layout_.value_offset());
  if (content.slots == nullptr) return;
  const int64_t slot_bytes = content.slot_width * layout_.slot_number_bytes();
  CopyBytes(content.slots + position * slot_bytes, slot_bytes, row + layout_.slots_offset());
}

Status TableShard::Upsert(const ShardKeys& keys, const EmbeddingTable::Content& content,
                          uint32_t version, int64_t* num_refused) {
  if (content.slot_width > layout_.slot_width()) {
    return InvalidArgument("rows have ", content.slot_width,
                           " numbers of slots, but the table has ", layout_.slot_width(),
                           "; do not clear or restore it meanwhile");
  }
  const int64_t num_missing = FindAll(keys, layout_.row_bytes(), [&](const auto& group, int64_t i) {
    WriteContent(group.rows[i], group.positions[i], content);
    rows_.Change(group.numbers[i]);
  });
  Status status;
  for (int64_t i = 0; i < num_missing; ++i) {
    if (i % kGroup == 0) status = ReserveFor(std::min(kGroup, num_missing - i));
    if (!status.ok()) break;
    const int64_t key = keys.keys[keys.positions[i]];
    uint32_t row = rows_.Find(key, keys.hashes[i]);  // a key that is in the batch twice
    if (row == kNoRow && MakeRoom(num_missing - i)) {
      row = InsertRow(key, keys.hashes[i], 0, version);
      const uint32_t filtered = filtered_.Find(key, keys.hashes[i]);
      if (filtered != kNoRow) filtered_.Erase(filtered);
    }
    if (row != kNoRow) {
      WriteContent(rows_.row(row), keys.positions[i], content);
      rows_.Change(row);
    }
    *num_refused += row == kNoRow;
  }
  statistics_.refusals += *num_refused;
  if (is_bounded()) evictions_.EndBatch();
  return status;
}

}  // namespace fused_embedding
