// The methods of TableShard for tables with a cold store: promotion and demotion of its rows.

#include <cstring>
#include <new>
#include <utility>

#include "tf_ops/core/table/table_shard.h"
#include "tf_ops/core/table/value_bytes.h"

namespace fused_embedding {
namespace {

// For functions that cannot return a Status. The callers of TableShard convert the exception to
// one.
void ReserveOrThrow(int64_t num_rows, KeyedRows* rows) {
  if (!rows->Reserve(num_rows).ok()) throw std::bad_alloc();
}

void CopyRow(const char* row, int64_t row_bytes, uint32_t to, KeyedRows* rows) {
  CopyBytes(row, row_bytes, rows->row(to));
}

}  // namespace

Status TableShard::AddTier(CacheStrategy strategy, std::atomic<int64_t>* num_leaving) {
  tier_ = std::make_unique<ShardTier>(config_.hash_key, config_.max_load, layout_.row_bytes());
  tier_->num_leaving = num_leaving;
  rows_.clock().TurnOn(strategy);
  FE_RETURN_IF_ERROR(tier_->waiting.Init());
  return tier_->writing.Init();
}

void TableShard::SetMaxRows(int64_t max_rows) {
  tier_->max_rows = max_rows;
  rows_.slab().ExpectRows(max_rows);
}

// --- Promotion ---

template <typename IsFirst>
int64_t TableShard::Partition(const ShardKeys& keys, const IsFirst& is_first) {
  std::vector<std::pair<int64_t, uint64_t>> others;
  int64_t num_first = 0;
  for (int64_t i = 0; i < keys.n; ++i) {
    const std::pair<int64_t, uint64_t> key(keys.positions[i], keys.hashes[i]);
    if (!is_first(i)) {
      others.push_back(key);
      continue;
    }
    keys.positions[num_first] = key.first;
    keys.hashes[num_first++] = key.second;
  }
  for (size_t i = 0; i < others.size(); ++i) {
    keys.positions[num_first + static_cast<int64_t>(i)] = others[i].first;
    keys.hashes[num_first + static_cast<int64_t>(i)] = others[i].second;
  }
  return num_first;
}

int64_t TableShard::SplitResident(const ShardKeys& keys, RowUse use) {
  std::vector<uint32_t> numbers(static_cast<size_t>(keys.n));
  for (int64_t begin = 0; begin < keys.n; begin += kGroup) {
    ShardKeyGroup group(keys, begin);
    rows_.FindGroup(int64_t{sizeof(RowHeader)}, &group);
    for (int64_t i = 0; i < group.n; ++i) {
      numbers[static_cast<size_t>(begin + i)] = group.numbers[i];
      if (group.numbers[i] != kNoRow) rows_.clock().Use(group.numbers[i], use);
    }
  }
  statistics_.index_probes += keys.n;
  return Partition(keys, [&](int64_t i) { return numbers[static_cast<size_t>(i)] != kNoRow; });
}

// Inserts a row into DRAM again whose write-back is pending or in flight. The pending copy is kept:
// a running save scans rows by number, and may already have passed the number that the row gets
// here.
void TableShard::ComeBack(int64_t key, uint64_t hash, const char* row) {
  const uint32_t number = rows_.Insert(key, hash);
  CopyRow(row, layout_.row_bytes(), number, &rows_);
  --tier_->num_cold;
}

bool TableShard::Claim(const ShardKeys& keys, const void* owner, std::vector<int64_t>* wanted,
                       std::vector<int64_t>* claimed) {
  LeavingRows& waiting = tier_->waiting;
  LeavingRows& writing = tier_->writing;
  claimed->reserve(static_cast<size_t>(keys.n));  // push_back below cannot throw
  bool is_any_foreign = false;
  for (int64_t i = 0; i < keys.n; ++i) {
    const int64_t key = keys.keys[keys.positions[i]];
    const uint64_t hash = keys.hashes[i];
    if (rows_.Find(key, hash) != kNoRow) continue;
    const auto claim = tier_->claims.find(key);
    if (claim != tier_->claims.end()) {
      is_any_foreign |= claim->second != owner;
      continue;
    }
    const uint32_t waits = waiting.rows.Find(key, hash);
    const bool is_erased = waiting.erased.Find(key, hash) != kNoRow;
    const uint32_t is_written = is_erased ? kNoRow : writing.rows.Find(key, hash);
    if (waits != kNoRow || is_written != kNoRow) {
      ReserveOrThrow(1, &rows_);
      ComeBack(key, hash, waits != kNoRow ? waiting.rows.row(waits) : writing.rows.row(is_written));
      continue;
    }
    tier_->claims.emplace(key, owner);
    claimed->push_back(key);
    if (!is_erased && writing.erased.Find(key, hash) == kNoRow) wanted->push_back(key);
  }
  return is_any_foreign;
}

Status TableShard::Land(int64_t key, const char* bytes, RowUse use) {
  FE_RETURN_IF_ERROR(rows_.Reserve(1));
  const uint32_t number = rows_.Insert(key, rows_.Hash(key));
  CopyBytes(bytes, layout_.row_bytes() - int64_t{sizeof(key)}, rows_.row(number) + sizeof(key));
  rows_.clock().AddClean(number, rows_.header(number)->frequency, use);
  --tier_->num_cold;
  return Status();
}

int64_t TableShard::SplitSettled(const ShardKeys& keys, const void* owner) {
  return Partition(keys, [&](int64_t i) {
    const int64_t key = keys.keys[keys.positions[i]];
    if (rows_.Find(key, keys.hashes[i]) != kNoRow) return true;
    const auto claim = tier_->claims.find(key);
    return claim != tier_->claims.end() && claim->second == owner;
  });
}

void TableShard::Release(Span<const int64_t> claimed) {
  for (const int64_t key : claimed) tier_->claims.erase(key);
}

// --- Demotion ---

void TableShard::Trim() {
  while (rows_.size() > tier_->max_rows) {
    const uint32_t number = rows_.clock().Next(
        rows_.slab().num_rows(), [&](uint32_t row) { return rows_.header(row)->frequency; });
    if (rows_.clock().IsDirty(number)) {
      const int64_t key = rows_.header(number)->key;
      const uint64_t hash = rows_.Hash(key);
      KeyedRows& waiting = tier_->waiting.rows;
      if (!waiting.Reserve(1).ok()) return;     // no memory: the next batch retries
      uint32_t copy = waiting.Find(key, hash);  // of an earlier demotion
      const uint32_t erased = tier_->waiting.erased.Find(key, hash);
      *tier_->num_leaving += copy == kNoRow && erased == kNoRow;
      if (copy == kNoRow) copy = waiting.Insert(key, hash);
      if (erased != kNoRow) tier_->waiting.erased.Erase(erased);
      CopyRow(rows_.row(number), layout_.row_bytes(), copy, &waiting);
      ++statistics_.written_back;
    }
    rows_.Erase(number);
    ++tier_->num_cold;
    ++statistics_.demotions;
  }
}

// Erases the row in DRAM, and marks the key as erased so that its row in the store is erased too.
void TableShard::EraseRow(uint32_t number) {
  if (tier_ != nullptr) {
    const int64_t key = rows_.header(number)->key;
    const uint64_t hash = rows_.Hash(key);
    LeavingRows& waiting = tier_->waiting;
    if (waiting.erased.Find(key, hash) == kNoRow) {
      ReserveOrThrow(1, &waiting.erased);
      const uint32_t copy = waiting.rows.Find(key, hash);  // of an earlier demotion
      *tier_->num_leaving += copy == kNoRow;
      if (copy != kNoRow) waiting.rows.Erase(copy);
      *waiting.erased.header(waiting.erased.Insert(key, hash)) = {key, 0, 0};
    }
  }
  rows_.Erase(number);
}

void TableShard::TakeLeaving() {
  if (tier_->writing.size() == 0) std::swap(tier_->waiting, tier_->writing);
}

int64_t TableShard::TakeDirty(int64_t begin, int64_t max_rows) {
  LeavingRows& writing = tier_->writing;
  const int64_t num_rows = rows_.slab().num_rows();
  int64_t number = begin;
  for (; number < num_rows && max_rows > 0; ++number) {
    if (!rows_.slab().IsAlive(number) || !rows_.clock().IsDirty(number)) continue;
    const int64_t key = rows_.header(number)->key;
    const uint64_t hash = rows_.Hash(key);
    ReserveOrThrow(1, &writing.rows);
    uint32_t copy = writing.rows.Find(key, hash);            // of an earlier demotion
    const uint32_t erased = writing.erased.Find(key, hash);  // erased, then inserted again
    *tier_->num_leaving += copy == kNoRow && erased == kNoRow;
    if (copy == kNoRow) copy = writing.rows.Insert(key, hash);
    if (erased != kNoRow) writing.erased.Erase(erased);
    CopyRow(rows_.row(number), layout_.row_bytes(), copy, &writing.rows);
    rows_.clock().SetClean(number);
    ++statistics_.written_back;
    --max_rows;
  }
  return number;
}

void TableShard::GetWriting(std::vector<const char*>* rows, std::vector<int64_t>* erased) const {
  const LeavingRows& writing = tier_->writing;
  writing.rows.ForEach([&](uint32_t number) { rows->push_back(writing.rows.row(number)); });
  writing.erased.ForEach(
      [&](uint32_t number) { erased->push_back(writing.erased.header(number)->key); });
}

void TableShard::ForgetWritten() {
  *tier_->num_leaving -= tier_->writing.size();
  tier_->writing.Clear(layout_.row_bytes());
}

void TableShard::ForgetResident(RowLayout layout, std::vector<char> new_row) {
  tier_->num_cold += rows_.size();
  layout_ = std::move(layout);
  new_row_ = std::move(new_row);
  rows_.Clear(layout_.row_bytes());
  tier_->waiting.Clear(layout_.row_bytes());
  tier_->writing.Clear(layout_.row_bytes());
}

}  // namespace fused_embedding
