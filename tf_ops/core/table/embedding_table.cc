#include "tf_ops/core/table/embedding_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/secret.h"
#include "tf_ops/core/table/batch_routing.h"
#include "tf_ops/core/table/shard_loops.h"
#include "tf_ops/core/table/table_shard.h"
#include "tf_ops/core/table/tier/cold_tier.h"

namespace fused_embedding {
namespace {

// Below this many keys a second thread costs more than it brings.
constexpr int64_t kMinParallelKeys = 4096;
constexpr int64_t kKeyNs = 30;

// Who can tell the hash of a key can choose keys that collide, so it is a secret, new for every
// table. Only where the content depends on it is it a function of the seed: bounds and Bloom
// filters are per shard. Not the hash by which ids are spread over partitions, in either case: the
// shards of a partition would be uneven.
uint64_t HashKey(const TableConfig& config) {
  constexpr uint64_t kNotZero = 0xd1b54a32d192ed03ULL;
  const bool is_by_shard =
      config.max_capacity > 0 || config.admission.kind == AdmissionKind::kBloom;
  const uint64_t hash_key = is_by_shard ? Mix64(config.initializer.seed + kNotZero) : Secret();
  return hash_key == 0 ? kNotZero : hash_key;
}

Status CheckSize(const char* name, int64_t size, int64_t num_keys) {
  if (size == 0 || size == num_keys) return Status();
  return InvalidArgument(name, " must have one number for each of ", num_keys,
                         " keys, or be empty, got ", size);
}

template <typename T>
Status CheckNotNegative(const char* name, Span<const T> numbers, int64_t num_keys) {
  FE_RETURN_IF_ERROR(CheckSize(name, numbers.size, num_keys));
  for (int64_t i = 0; i < numbers.size; ++i) {
    if (numbers[i] < 0) {
      return InvalidArgument(name, " must not be negative, got ", name, "[", i, "] = ", numbers[i]);
    }
  }
  return Status();
}

Status Refused(int64_t num_refused, const TableConfig& config) {
  // No policy evicts the rows that a batch itself uses.
  const char* advice = config.eviction == EvictionPolicy::kNone
                           ? " rows; raise it, choose an eviction policy, expire rows, or set "
                             "check_mode to warning or ignore"
                           : " rows, all of them used by the same batch and so not evicted; raise "
                             "it, use smaller batches, or set check_mode to warning or ignore";
  return ResourceExhausted(
      num_refused, " keys do not fit into a table of max_capacity = ", config.max_capacity, advice);
}

// The first of the shards' errors, in the order of their numbers.
class ShardErrors {
 public:
  void Add(int64_t shard, Status status) {
    if (status.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (shard >= shard_) return;
    shard_ = shard;
    status_ = std::move(status);
  }
  Status status() const { return status_; }

 private:
  std::mutex mutex_;
  int64_t shard_ = kMaxShards;
  Status status_;
};

// Calls body(shard, its keys) for the shards that have any, each under its lock. Shards that
// another batch is in are left for later: batches do not queue up behind each other.
template <typename Body>
Status ForEachRoutedShard(const CpuExec& exec, const Shards& shards, const BatchRouting& routing,
                          const Body& body) {
  const int64_t num_shards = static_cast<int64_t>(shards.size());
  ShardErrors errors;
  bool is_done[kMaxShards];
  int64_t num_keys = 0;
  for (int64_t s = 0; s < num_shards; ++s) {
    is_done[s] = routing.size(s) == 0;
    num_keys += routing.size(s);
  }
  const auto run = [&](int64_t s, bool may_wait) {
    if (is_done[s]) return;
    TableShard* shard = shards[static_cast<size_t>(s)].get();
    std::unique_lock<std::mutex> lock(shard->mutex(), std::try_to_lock);
    if (!lock.owns_lock() && !may_wait) return;
    if (!lock.owns_lock()) lock.lock();
    is_done[s] = true;
    errors.Add(s, WithoutExceptions([&] { return body(shard, routing.keys(s)); }));
  };
  const auto run_range = [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) run(s, false);
    for (int64_t s = begin; s < end; ++s) run(s, true);
  };
  if (num_keys < kMinParallelKeys || exec.num_threads() == 1) {
    run_range(0, num_shards);
  } else {
    exec.ParallelFor(num_shards, num_keys / num_shards * kKeyNs, run_range);
  }
  return errors.status();
}

// Calls body(shard, its keys) for the shards that have any, in ascending order.
template <typename Body>
Status ForEachKeyedShard(const Shards& shards, const BatchRouting& routing, const Body& body) {
  for (size_t s = 0; s < shards.size(); ++s) {
    const ShardKeys keys = routing.keys(static_cast<int64_t>(s));
    if (keys.n > 0) FE_RETURN_IF_ERROR(body(shards[s].get(), keys));
  }
  return Status();
}

}  // namespace

Status EmbeddingTable::Create(const TableConfig& config, std::unique_ptr<EmbeddingTable>* table) {
  FE_RETURN_IF_ERROR(CheckTableConfig(config));
  return WithoutExceptions([&] {
    std::unique_ptr<EmbeddingTable> created(new EmbeddingTable(config));
    FE_RETURN_IF_ERROR(created->Init());
    *table = std::move(created);
    return Status();
  });
}

EmbeddingTable::EmbeddingTable(const TableConfig& config)
    : config_(config), hash_key_(HashKey(config)), layout_(config.layout) {
  if (config_.num_shards == 0) config_.num_shards = DefaultShards(config_.max_capacity);
  while (int64_t{1} << shard_bits_ < config_.num_shards) ++shard_bits_;
}

EmbeddingTable::~EmbeddingTable() = default;

Status EmbeddingTable::Init() {
  constexpr double kMinLoad = 0.60, kMaxLoad = 0.80;
  const int64_t n = config_.num_shards;
  for (int64_t s = 0; s < n; ++s) {
    ShardConfig shard;
    shard.number = s;
    shard.hash_key = hash_key_;
    shard.max_load =
        kMaxLoad - (kMaxLoad - kMinLoad) * static_cast<double>(s) / static_cast<double>(n);
    if (config_.max_capacity > 0) shard.max_capacity = CapacityOfShard(config_, s);
    shard.bloom_counters = (config_.admission.bloom_counters + n - 1) / n;
    shards_.push_back(std::make_unique<TableShard>(config_, shard));
    FE_RETURN_IF_ERROR(shards_.back()->Init());
  }
  FE_RETURN_IF_ERROR(SetInitializer(config_.initializer));
  if (!config_.storage.open) return Status();
  return ColdTier::Create(config_.storage, layout_, shards_, &tier_);
}

InitializerConfig EmbeddingTable::initializer() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return *initializer_;
}

Status EmbeddingTable::SetInitializer(const InitializerConfig& initializer) {
  FE_RETURN_IF_ERROR(CheckInitializer(initializer, config_.layout));
  return WithoutExceptions([&] {
    const auto shared = std::make_shared<const InitializerConfig>(initializer);
    const std::lock_guard<std::mutex> lock(mutex_);
    initializer_ = shared;
    return ForEachShard(shards_, [&](TableShard* shard) {
      shard->set_initializer(shared);
      return Status();
    });
  });
}

// Calls body(shard, keys) for all keys, each shard locked: once for a shard, or more often where a
// cold store is below.
template <typename Body>
Status EmbeddingTable::RunOnShards(const CpuExec& exec, const BatchRouting& routing, RowUse use,
                                   const Body& body) {
  if (tier_ == nullptr) return ForEachRoutedShard(exec, shards_, routing, body);
  const auto lock = tier_->Share();
  FE_RETURN_IF_ERROR(tier_->WaitForRoom());
  MissingKeys missing;
  FE_RETURN_IF_ERROR(ForEachRoutedShard(
      exec, shards_, routing, [&](TableShard* shard, const ShardKeys& keys) -> Status {
        const int64_t num_resident = shard->SplitResident(keys, use);
        missing.of_shard[shard->number()] = keys.Part(num_resident, keys.n);
        if (num_resident == 0) return Status();
        return body(shard, keys.Part(0, num_resident));
      }));
  return tier_->RunMissing(&missing, use, body);
}

bool EmbeddingTable::MayRefuse(const BatchRouting& routing) const {
  if (config_.max_capacity == 0) return false;
  if (config_.eviction == EvictionPolicy::kNone) return true;
  for (size_t s = 0; s < shards_.size(); ++s) {
    if (routing.size(static_cast<int64_t>(s)) > shards_[s]->max_capacity()) return true;
  }
  return false;
}

// All shards that the batch goes to are locked, in ascending order: two batches cannot wait for
// each other. The batch is then worked on by this thread alone, because a pool's other threads may
// be waiting for these locks.
template <typename Body>
Status EmbeddingTable::RunWhole(const BatchRouting& routing, const Occurrences* occurrences,
                                const Body& body) {
  return WithoutExceptions([&] {
    std::vector<std::unique_lock<std::mutex>> locks;
    locks.reserve(shards_.size());
    int64_t num_refused = 0;
    FE_RETURN_IF_ERROR(
        ForEachKeyedShard(shards_, routing, [&](TableShard* shard, const ShardKeys& keys) {
          locks.emplace_back(shard->mutex());
          num_refused += shard->CountRefusals(keys, occurrences);
          return Status();
        }));
    if (num_refused > 0) return Refused(num_refused, config_);
    return ForEachKeyedShard(shards_, routing, body);
  });
}

Status EmbeddingTable::FindOrInsert(const CpuExec& exec, const LookupInput& in, LookupOutput* out) {
  FE_RETURN_IF_ERROR(CheckNotNegative("counts", in.counts, in.keys.size));
  BatchRouting routing;
  FE_RETURN_IF_ERROR(routing.Route(in.keys, hash_key_, shard_bits_));
  const Occurrences occurrences{in.counts, SaturatedVersion(in.step < 0 ? step() : in.step),
                                in.first_values, in.min_frequency};
  std::atomic<int64_t> num_refused{0};
  const auto find_or_insert = [&](TableShard* shard, const ShardKeys& keys) {
    LookupOutput shard_out = *out;
    shard_out.num_refused = 0;
    const Status status = shard->FindOrInsert(keys, occurrences, &shard_out);
    num_refused += shard_out.num_refused;
    return status;
  };
  const bool is_whole = config_.check_mode == CheckMode::kError && MayRefuse(routing);
  FE_RETURN_IF_ERROR(is_whole ? RunWhole(routing, &occurrences, find_or_insert)
                              : RunOnShards(exec, routing, RowUse::kNow, find_or_insert));
  out->num_refused = num_refused;
  // Found out too late where memory was short.
  const bool is_error = num_refused > 0 && config_.check_mode == CheckMode::kError;
  return is_error ? Refused(num_refused, config_) : Status();
}

Status EmbeddingTable::Find(const CpuExec& exec, const LookupInput& in, LookupOutput* out) {
  BatchRouting routing;
  FE_RETURN_IF_ERROR(routing.Route(in.keys, hash_key_, shard_bits_));
  out->num_refused = 0;
  return RunOnShards(exec, routing, RowUse::kNow, [&](TableShard* shard, const ShardKeys& keys) {
    shard->Find(keys, out);
    return Status();
  });
}

Status EmbeddingTable::Prefetch(const CpuExec& exec, Span<const int64_t> keys) {
  if (tier_ == nullptr) return Status();
  BatchRouting routing;
  FE_RETURN_IF_ERROR(routing.Route(keys, hash_key_, shard_bits_));
  return RunOnShards(exec, routing, RowUse::kSoon,
                     [](TableShard* /*shard*/, const ShardKeys& /*keys*/) { return Status(); });
}

Status EmbeddingTable::CheckSlots(Span<const Slot> slots) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return WithoutExceptions([&] {
    std::vector<Slot> missing;
    return FindMissingSlots(layout_, slots, &missing);
  });
}

Status EmbeddingTable::EnsureSlots(Span<const Slot> slots) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return WithoutExceptions([&] {
    std::vector<Slot> added;
    FE_RETURN_IF_ERROR(FindMissingSlots(layout_, slots, &added));
    if (added.empty() && has_all_slots_) return Status();
    if (tier_ != nullptr) {
      RowLayout layout = layout_;
      layout.slots.insert(layout.slots.end(), added.begin(), added.end());
      FE_RETURN_IF_ERROR(tier_->SetLayout(layout));
      layout_ = std::move(layout);
      return Status();
    }
    layout_.slots.insert(layout_.slots.end(), added.begin(), added.end());
    has_all_slots_ = false;
    FE_RETURN_IF_ERROR(ForEachShard(shards_, [&](TableShard* shard) {
      // Where memory ran out in an earlier call, some shards have more of them than others.
      const int64_t num_present = static_cast<int64_t>(shard->layout().slots.size());
      return shard->AddSlots({layout_.slots.begin() + num_present, layout_.slots.end()});
    }));
    has_all_slots_ = true;
    return Status();
  });
}

int64_t EmbeddingTable::SlotOffset(const std::string& name) const {
  return layout().SlotOffset(name);
}

RowLayout EmbeddingTable::layout() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return layout_;
}

Status EmbeddingTable::ForEachRow(const CpuExec& exec, Span<const int64_t> keys,
                                  Span<const int64_t> handles, const RowBody& body) {
  return VisitRows(exec, keys, handles, true, body);
}

Status EmbeddingTable::VisitRows(const CpuExec& exec, Span<const int64_t> keys,
                                 Span<const int64_t> handles, bool is_changing,
                                 const RowBody& body) {
  FE_RETURN_IF_ERROR(CheckSize("handles", handles.size, keys.size));
  BatchRouting routing;
  FE_RETURN_IF_ERROR(routing.Route(keys, hash_key_, shard_bits_));
  return RunOnShards(exec, routing, RowUse::kNone,
                     [&](TableShard* shard, const ShardKeys& shard_keys) {
                       shard->ForEachRow(shard_keys, handles, is_changing, body);
                       return Status();
                     });
}

Status EmbeddingTable::Upsert(const CpuExec& exec, const Content& content) {
  const int64_t n = content.keys.size;
  FE_RETURN_IF_ERROR(CheckNotNegative("frequencies", content.frequencies, n));
  FE_RETURN_IF_ERROR(CheckNotNegative("versions", content.versions, n));
  if (n > 0 && content.values == nullptr) return InvalidArgument("values must be given");
  BatchRouting routing;
  FE_RETURN_IF_ERROR(routing.Route(content.keys, hash_key_, shard_bits_));
  const uint32_t version = SaturatedVersion(step());
  std::atomic<int64_t> num_refused{0};
  const auto upsert = [&](TableShard* shard, const ShardKeys& keys) {
    int64_t refused = 0;
    const Status status = shard->Upsert(keys, content, version, &refused);
    num_refused += refused;
    return status;
  };
  const bool is_whole = config_.check_mode == CheckMode::kError && MayRefuse(routing);
  return is_whole ? RunWhole(routing, nullptr, upsert)
                  : RunOnShards(exec, routing, RowUse::kNone, upsert);
}

Status EmbeddingTable::Erase(const CpuExec& exec, Span<const int64_t> keys, int64_t* num_erased) {
  BatchRouting routing;
  FE_RETURN_IF_ERROR(routing.Route(keys, hash_key_, shard_bits_));
  std::atomic<int64_t> erased{0};
  FE_RETURN_IF_ERROR(RunOnShards(exec, routing, RowUse::kNone,
                                 [&](TableShard* shard, const ShardKeys& shard_keys) {
                                   erased += shard->Erase(shard_keys);
                                   return Status();
                                 }));
  *num_erased = erased;
  return Status();
}

Status EmbeddingTable::Expire(const CpuExec& exec, const Expiry& in, int64_t* num_expired) {
  Expiry now = in;
  if (now.step < 0) now.step = step();
  if (tier_ != nullptr) return ExpireCold(now, num_expired);
  std::atomic<int64_t> expired{0};
  exec.ParallelFor(num_shards(), size() / num_shards() * kKeyNs, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      TableShard* shard = shards_[static_cast<size_t>(s)].get();
      const std::lock_guard<std::mutex> lock(shard->mutex());
      expired += shard->Expire(now);
    }
  });
  *num_expired = expired;
  return Status();
}

// All rows are looked at in the store; those that seem expired are fetched, because they may be
// newer in DRAM.
Status EmbeddingTable::ExpireCold(const Expiry& in, int64_t* num_expired) {
  const auto lock = tier_->Share();
  FE_RETURN_IF_ERROR(tier_->WaitForRoom());
  *num_expired = 0;
  FE_RETURN_IF_ERROR(ForEachShard(shards_, [&](TableShard* shard) {
    *num_expired += shard->Expire(in);
    return Status();
  }));
  std::vector<int64_t> keys;
  return tier_->Scan([&](const RowLayout& layout, Span<const char> rows) -> Status {
    FE_RETURN_IF_ERROR(tier_->WaitForRoom());
    keys.clear();
    for (const char* row = rows.begin(); row != rows.end(); row += layout.row_bytes()) {
      if (IsExpired(layout, row, in)) keys.push_back(reinterpret_cast<const RowHeader*>(row)->key);
    }
    BatchRouting routing;
    FE_RETURN_IF_ERROR(routing.Route(AsSpan(keys), hash_key_, shard_bits_));
    MissingKeys missing;
    for (int64_t s = 0; s < num_shards(); ++s) missing.of_shard[s] = routing.keys(s);
    return tier_->RunMissing(&missing, RowUse::kNone,
                             [&](TableShard* shard, const ShardKeys& shard_keys) {
                               *num_expired += shard->ExpireKeys(shard_keys, in);
                               return Status();
                             });
  });
}

// What the table knew beside its shards; they have rows of `layout`.
void EmbeddingTable::Forget(RowLayout layout) {
  layout_ = std::move(layout);
  has_all_slots_ = true;
  known_save_ = last_save_ = 0;
  set_step(0);
}

Status EmbeddingTable::Clear() {
  const std::lock_guard<std::mutex> layout_lock(mutex_);
  RowLayout layout = layout_;
  layout.slots.clear();
  if (tier_ != nullptr) FE_RETURN_IF_ERROR(tier_->Clear(layout));
  Forget(std::move(layout));
  if (tier_ != nullptr) return Status();
  for (const std::unique_ptr<TableShard>& shard : shards_) {
    const std::lock_guard<std::mutex> lock(shard->mutex());
    shard->Clear();
  }
  return Status();
}

Status EmbeddingTable::Metadata(const CpuExec& exec, Span<const int64_t> keys,
                                Span<int64_t> frequencies, Span<int64_t> versions) {
  const auto read = [&](const RowLayout& /*layout*/, const RowBatch& batch) {
    for (int64_t i = 0; i < batch.n; ++i) {
      RowHeader header{0, 0, 0};
      const bool has_row = batch.rows[i] != nullptr;
      if (has_row) std::memcpy(&header, batch.rows[i], sizeof(header));
      frequencies[batch.positions[i]] = header.frequency;
      versions[batch.positions[i]] = has_row ? int64_t{header.version} : -1;
    }
  };
  return VisitRows(exec, keys, {}, false, read);
}

int64_t EmbeddingTable::size() const {
  int64_t size = 0;
  for (const std::unique_ptr<TableShard>& shard : shards_) {
    const std::lock_guard<std::mutex> lock(shard->mutex());
    size += shard->size();
  }
  return size;
}

TableStatistics EmbeddingTable::Statistics() const {
  TableStatistics sum;
  for (const std::unique_ptr<TableShard>& shard : shards_) {
    const std::lock_guard<std::mutex> lock(shard->mutex());
    sum += shard->Statistics();
  }
  if (tier_ == nullptr) return sum;
  const auto lock = tier_->Share();
  tier_->AddStatistics(&sum);
  return sum;
}

Status EmbeddingTable::RestoreFiltered(const FilteredKeys& filtered) {
  const int64_t n = static_cast<int64_t>(filtered.keys.size());
  if (filtered.frequencies.size() != filtered.keys.size() ||
      filtered.versions.size() != filtered.keys.size()) {
    return InvalidArgument("each of ", n,
                           " filtered keys must have a frequency and a version, got ",
                           filtered.frequencies.size(), " and ", filtered.versions.size());
  }
  // Counts are of no use to a table that admits otherwise.
  if (config_.admission.kind != AdmissionKind::kCounter) return Status();
  BatchRouting routing;
  FE_RETURN_IF_ERROR(routing.Route({filtered.keys.data(), n}, hash_key_, shard_bits_));
  return RunOnShards(SerialExec(), routing, RowUse::kNone,
                     [&](TableShard* shard, const ShardKeys& keys) {
                       return shard->RestoreFiltered(keys, filtered);
                     });
}

}  // namespace fused_embedding
