#include <vector>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/batch.cu.h"
#include "tf_ops/core/table/gpu/count_keys.cu.h"
#include "tf_ops/core/table/gpu/growth.cu.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {
namespace {

// An entry that may be evicted. All of these are in a total order.
struct Victim {
  uint64_t score;
  int64_t key;
  int entry;  // -1: none

  __device__ bool IsBefore(const Victim& other) const {
    if (entry < 0 || other.entry < 0) return entry >= 0;
    return score != other.score ? score < other.score : key < other.key;
  }
};

// The least by IsBefore over the lanes, on all of them.
__device__ Victim FirstOf(const Lanes& lanes, Victim victim) {
  for (int distance = lanes.size / 2; distance > 0; distance /= 2) {
    const Victim other = {__shfl_xor_sync(lanes.mask(), victim.score, distance),
                          __shfl_xor_sync(lanes.mask(), victim.key, distance),
                          __shfl_xor_sync(lanes.mask(), victim.entry, distance)};
    if (other.IsBefore(victim)) victim = other;
  }
  return victim;
}

// A bucket, and what its lanes know of it: a lane has the bits of its own entries.
class OwnedBucket {
 public:
  __device__ OwnedBucket(const Lanes& lanes, Bucket* bucket)
      : lanes_(lanes), bucket_(bucket), free_(MatchDigests(*bucket, lanes.lane, 0)) {}

  __device__ int NumFree() const { return lanes_.Sum(__popc(free_)); }
  __device__ int NumPinned() const { return lanes_.Sum(__popc(pinned_)); }

  // A row of this batch's keys is pinned: no other key of the batch evicts it. Returns whether it
  // was pinned before.
  __device__ bool Pin(int entry) {
    const uint32_t bit = BitOf(entry);
    const int was_pinned = lanes_.Sum(static_cast<int>((pinned_ & bit) != 0));
    pinned_ |= bit;
    free_ &= ~bit;
    return was_pinned != 0;
  }

  // The lowest free entry, or -1.
  __device__ int FirstFree() const {
    const int entry = lanes_.lane * kEntriesPerLane + __ffs(static_cast<int>(free_)) - 1;
    int first = free_ == 0 ? kEntries : entry;
    for (int distance = lanes_.size / 2; distance > 0; distance /= 2) {
      const int other = __shfl_xor_sync(lanes_.mask(), first, distance);
      first = other < first ? other : first;
    }
    return first == kEntries ? -1 : first;
  }

  // The entry to evict, or -1 if all are pinned. No entry is free.
  __device__ int FirstVictim() const {
    Victim victim = {0, 0, -1};
    for (uint32_t rest = ~pinned_ & kLaneMask; rest != 0; rest &= rest - 1) {
      const int entry = lanes_.lane * kEntriesPerLane + __ffs(static_cast<int>(rest)) - 1;
      const Victim other = {bucket_->scores[entry], bucket_->keys[entry], entry};
      if (other.IsBefore(victim)) victim = other;
    }
    return FirstOf(lanes_, victim).entry;
  }

 private:
  // 0 on lanes that do not have the entry.
  __device__ uint32_t BitOf(int entry) const {
    return entry / kEntriesPerLane == lanes_.lane ? 1u << (entry % kEntriesPerLane) : 0;
  }

  Lanes lanes_;
  Bucket* bucket_;
  uint32_t free_;
  uint32_t pinned_ = 0;
};

// --- Plan ---

// Keys that do not fit into the free entries of their buckets.
struct Overflow {
  unsigned long long num_evicted, num_refused;  // atomicAdd has no signed 64 bits

  int64_t sum() const { return static_cast<int64_t>(num_evicted + num_refused); }
};

__global__ void CountOverflowKernel(SortedBatch sorted, Overflow* overflows) {
  ForEachBucket(sorted, [&](const Lanes& lanes, int64_t t, uint32_t number, const Range& run) {
    const GpuTableView& view = sorted.batch.tables[t].view;
    Bucket* bucket = view.bucket(number);
    OwnedBucket owned(lanes, bucket);
    int64_t num_missing = 0;
    for (int64_t i = run.begin; i < run.end; ++i) {
      const int64_t key = sorted.batch.keys[sorted.order[i]];
      const int entry = FindEntry(lanes, *bucket, key, GpuTableView::Digest(view.Hash(key)));
      if (entry < 0) {
        ++num_missing;
      } else {
        owned.Pin(entry);
      }
    }
    const int num_free = owned.NumFree();
    const int64_t num_evictable = kEntries - num_free - owned.NumPinned();
    if (num_missing <= num_free || lanes.lane != 0) return;
    const int64_t num_over = num_missing - num_free;
    const int64_t num_evicted = num_over < num_evictable ? num_over : num_evictable;
    atomicAdd(&overflows[t].num_evicted, static_cast<unsigned long long>(num_evicted));
    atomicAdd(&overflows[t].num_refused, static_cast<unsigned long long>(num_over - num_evicted));
  });
}

// One round: sorts the keys by bucket, and waits for what overflows.
Status CountOverflows(const GpuExec& exec, const GpuTableKeys& in, GpuInsertPlan* plan,
                      std::vector<Overflow>* overflows) {
  UploadedBatch uploaded;
  FE_RETURN_IF_ERROR(uploaded.Upload(exec, TablesOfBatch(in, {}), in));
  FE_RETURN_IF_ERROR(SortByBucket(exec, uploaded.batch(), &plan->buckets, &plan->order));
  DeviceBuffer<Overflow> device_overflows;
  FE_RETURN_IF_ERROR(device_overflows.Allocate(exec, in.tables.size));
  FE_RETURN_IF_ERROR(Fill(exec, 0, device_overflows.span()));
  const SortedBatch sorted = {uploaded.batch(), plan->buckets.data(), plan->order.data()};
  FE_RETURN_IF_ERROR(Launch(exec, in.keys.size * kBucketLanes, CountOverflowKernel, sorted,
                            device_overflows.data()));
  overflows->resize(static_cast<size_t>(in.tables.size));
  Readback readback;
  readback.Add<Overflow>(device_overflows.data(), AsSpan(*overflows));
  return readback.Wait(exec);
}

Status RowsDoNotFit(const GpuTable& table, int64_t t, int64_t num_over) {
  return ResourceExhausted("table ", t, " has no room for ", num_over, " of the keys in ",
                           table.num_buckets(), " buckets of ", kEntries,
                           " rows, and twice as many do not fit into max_bytes = ",
                           table.config().max_bytes, "; raise it, or choose an eviction");
}

// --- Run ---

// What a batch does to the entries of its keys.
struct EntryUpdate {
  const int32_t* counts;        // or null: one each
  const uint64_t* scores;       // kGiven
  const uint32_t* frequencies;  // null: a training lookup; else the content's, with `versions`
  const uint32_t* versions;

  __device__ bool is_content() const { return frequencies != nullptr; }

  __device__ void Apply(const TableOfBatch& table, int64_t position, Bucket* bucket,
                        int entry) const {
    uint32_t frequency = 0, version = table.version;
    if (is_content()) {
      frequency = frequencies[position];
      version = versions[position];
    } else {
      constexpr int64_t kMaxFrequency = 0xffffffff;
      const int64_t count = counts ? counts[position] : 1;
      const int64_t sum = int64_t{bucket->frequencies[entry]} + (count > 0 ? count : 0);
      frequency = static_cast<uint32_t>(sum < kMaxFrequency ? sum : kMaxFrequency);
    }
    bucket->frequencies[entry] = frequency;
    bucket->versions[entry] = version;
    bucket->scores[entry] = Score(table.view.eviction, position, frequency, version);
  }

 private:
  __device__ uint64_t Score(GpuEviction eviction, int64_t position, uint64_t frequency,
                            uint64_t version) const {
    switch (eviction) {
      case GpuEviction::kNone:
        return 0;
      case GpuEviction::kLru:
        return version << 32 | frequency;
      case GpuEviction::kLfu:
        return frequency << 32 | version;
      case GpuEviction::kGiven:
        return scores[position];
    }
    return 0;
  }
};

__device__ void KeepEvicted(const Bucket& bucket, int entry, int64_t position,
                            const Assigned& assigned) {
  if (!assigned.evicted_row) return;
  assigned.evicted_row[position] = 1;
  assigned.evicted[position] = {bucket.keys[entry], bucket.scores[entry], bucket.frequencies[entry],
                                bucket.versions[entry]};
}

// The keys of one bucket.
struct BucketKeys {
  const Lanes& lanes;
  const TableOfBatch& table;
  const GpuTableView& view;
  const Batch& batch;
  uint32_t number;
  const EntryUpdate& update;
  const Assigned& assigned;
  Bucket* bucket;
  OwnedBucket owned;

  __device__ BucketKeys(const Lanes& lanes, const TableOfBatch& table, const Batch& batch,
                        uint32_t number, const EntryUpdate& update, const Assigned& assigned)
      : lanes(lanes),
        table(table),
        view(table.view),
        batch(batch),
        number(number),
        update(update),
        assigned(assigned),
        bucket(table.view.bucket(number)),
        owned(lanes, bucket) {}

  // The row of the key at this position, which is found or was inserted.
  __device__ void Use(int64_t position, int entry, bool is_new) {
    const bool is_repeated = owned.Pin(entry);
    if (lanes.lane != 0) return;
    // Content is handled from the last key to the first: of a key that occurs twice, the last
    // holds.
    const bool is_old_content = update.is_content() && is_repeated;
    if (!is_old_content) update.Apply(table, position, bucket, entry);
    assigned.handles[position] = HandleOf(number, entry);
    assigned.is_written[position] = update.is_content() ? !is_repeated : is_new;
  }

  // Returns false for a key without a row.
  __device__ bool UseFound(int64_t position) {
    const int64_t key = batch.keys[position];
    const int entry = FindEntry(lanes, *bucket, key, GpuTableView::Digest(view.Hash(key)));
    if (entry < 0) return false;
    Use(position, entry, /*is_new=*/false);
    return true;
  }

  __device__ void Insert(int64_t position) {
    int entry = owned.FirstFree();
    const bool is_evicting = entry < 0;  // Plan has refused a batch that a table may not evict for
    if (is_evicting) entry = owned.FirstVictim();
    if (entry < 0) return;
    if (lanes.lane == 0) {
      if (is_evicting) KeepEvicted(*bucket, entry, position, assigned);
      const int64_t key = batch.keys[position];
      bucket->digests[entry] = GpuTableView::Digest(view.Hash(key));
      bucket->keys[entry] = key;
      bucket->frequencies[entry] = 0;
    }
    Use(position, entry, /*is_new=*/true);
  }
};

// All rows of the batch are pinned before the first is evicted.
__global__ void AssignKernel(SortedBatch sorted, EntryUpdate update, Assigned assigned) {
  ForEachBucket(sorted, [&](const Lanes& lanes, int64_t t, uint32_t number, const Range& run) {
    BucketKeys keys(lanes, sorted.batch.tables[t], sorted.batch, number, update, assigned);
    const auto position_of = [&](int64_t i) -> int64_t {
      return sorted.order[update.is_content() ? run.end - 1 - i : run.begin + i];
    };
    const int64_t num_keys = run.end - run.begin;
    for (int64_t i = 0; i < num_keys; ++i) {
      const int64_t position = position_of(i);
      if (lanes.lane == 0) {
        assigned.handles[position] = -1;
        assigned.is_written[position] = false;
      }
      keys.UseFound(position);
    }
    lanes.Sync();
    for (int64_t i = 0; i < num_keys; ++i) {
      const int64_t position = position_of(i);
      if (assigned.handles[position] >= 0) continue;
      // A key that occurs twice was inserted meanwhile.
      if (!keys.UseFound(position)) keys.Insert(position);
      lanes.Sync();
    }
  });
}

// [t] on the device: how many rows of each table were evicted.
__global__ void CountEvictedKernel(Batch batch, const int32_t* __restrict__ evicted_before,
                                   int32_t* __restrict__ num_rows) {
  for (int64_t t = ThreadOfGrid(); t < batch.num_tables; t += NumThreadsOfGrid()) {
    const TableOfBatch& table = batch.tables[t];
    num_rows[t] = evicted_before[table.end] - evicted_before[table.begin];
  }
}

Status NumberEvicted(const GpuExec& exec, const Batch& batch, const Assigned& assigned,
                     Span<int32_t> evicted_before, int32_t* num_rows) {
  FE_RETURN_IF_ERROR(
      ExclusiveSum<int32_t>(exec, {assigned.evicted_row, evicted_before.size}, evicted_before));
  return Launch(exec, batch.num_tables, CountEvictedKernel, batch, evicted_before.data, num_rows);
}

Status CheckGivenScores(const GpuTableKeys& in, Span<const uint64_t> scores) {
  for (int64_t t = 0; t < in.tables.size; ++t) {
    if (in.tables[t]->config().eviction != GpuEviction::kGiven || scores.size == in.keys.size) {
      continue;
    }
    return InvalidArgument("table ", t, " evicts by given scores: scores must have one for each ",
                           "of ", in.keys.size, " keys, got ", scores.size);
  }
  return Status();
}

Status CheckEvicted(const GpuTableKeys& in, const GpuEvicted& evicted) {
  if (evicted.rows.empty()) return Status();
  if (evicted.rows.size == in.tables.size && evicted.num_rows.size == in.tables.size) {
    return Status();
  }
  return InvalidArgument("evicted rows need arrays and a number for each of ", in.tables.size,
                         " tables, got ", evicted.rows.size, " and ", evicted.num_rows.size);
}

std::vector<TableOfBatch> TablesOfRun(const GpuTableKeys& in, const GpuInsertPlan& plan,
                                      const GpuEvicted& evicted, Span<char* const> values) {
  std::vector<TableOfBatch> tables = TablesOfBatch(in, values);
  for (size_t t = 0; t < tables.size() && !evicted.rows.empty(); ++t) {
    tables[t].evicted = evicted.rows[static_cast<int64_t>(t)];
    tables[t].max_evicted = plan.num_evicted[t];
  }
  return tables;
}

Status RunInsert(const GpuExec& exec, const Batch& batch, const EntryUpdate& update,
                 const GpuInsertPlan& plan, const GpuEvicted& evicted, int64_t* handles) {
  DeviceBuffer<bool> is_written;
  DeviceBuffer<int32_t> evicted_row, evicted_before;
  DeviceBuffer<EvictedEntry> evicted_entries;
  FE_RETURN_IF_ERROR(is_written.Allocate(exec, batch.num_keys));
  if (batch.is_used) {  // what no bucket's owner writes
    FE_RETURN_IF_ERROR(Fill(exec, 0, is_written.span()));
    FE_RETURN_IF_ERROR(Fill<int64_t>(exec, 0xff, {handles, batch.num_keys}));
  }
  if (!evicted.rows.empty()) {
    FE_RETURN_IF_ERROR(evicted_row.Allocate(exec, batch.num_keys + 1));
    FE_RETURN_IF_ERROR(evicted_before.Allocate(exec, batch.num_keys + 1));
    FE_RETURN_IF_ERROR(evicted_entries.Allocate(exec, batch.num_keys));
    FE_RETURN_IF_ERROR(Fill(exec, 0, evicted_row.span()));
  }
  Assigned assigned = {handles, is_written.data(), evicted_row.data(), evicted_entries.data()};
  const SortedBatch sorted = {batch, plan.buckets.data(), plan.order.data()};
  FE_RETURN_IF_ERROR(
      Launch(exec, batch.num_keys * kBucketLanes, AssignKernel, sorted, update, assigned));
  const Status numbered =
      evicted.rows.empty()
          ? Status()
          : NumberEvicted(exec, batch, assigned, evicted_before.span(), evicted.num_rows.data);
  // Evicted rows are lost then, but new ones are not left without values.
  if (!numbered.ok()) assigned.evicted_row = nullptr;
  const Status written = WriteRows(exec, batch, assigned, evicted_before.data());
  return numbered.ok() ? written : numbered;
}

}  // namespace

Status CheckGpuInsertPlan(const GpuTableKeys& in, const GpuInsertPlan& plan) {
  bool is_current = plan.order.size() == in.keys.size &&
                    static_cast<int64_t>(plan.num_changes.size()) == in.tables.size;
  for (int64_t t = 0; is_current && t < in.tables.size; ++t) {
    is_current = plan.num_changes[static_cast<size_t>(t)] == in.tables[t]->num_changes();
  }
  if (is_current) return Status();
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "a plan must be made for the same keys, and run before any other change of ",
                    "its tables; call PlanGpuInsert again");
}

Status PlanGpuInsert(const GpuExec& exec, const GpuTableKeys& in, GpuInsertPlan* plan) {
  *plan = {};
  FE_RETURN_IF_ERROR(CheckGpuTableKeys(in));
  std::vector<Overflow> overflows;
  for (std::vector<GpuTable*> growing;; growing.clear()) {
    FE_RETURN_IF_ERROR(CountOverflows(exec, in, plan, &overflows));
    for (int64_t t = 0; t < in.tables.size; ++t) {
      const bool is_over = overflows[static_cast<size_t>(t)].sum() > 0;
      if (is_over && in.tables[t]->CanGrow()) growing.push_back(in.tables[t]);
    }
    if (growing.empty()) break;
    FE_RETURN_IF_ERROR(DoubleGpuTables(exec, growing));
  }
  for (int64_t t = 0; t < in.tables.size; ++t) {
    const Overflow& overflow = overflows[static_cast<size_t>(t)];
    const GpuTable& table = *in.tables[t];
    if (table.config().eviction == GpuEviction::kNone && overflow.sum() > 0) {
      return RowsDoNotFit(table, t, overflow.sum());
    }
    plan->num_changes.push_back(table.num_changes());
    plan->num_evicted.push_back(static_cast<int64_t>(overflow.num_evicted));
    plan->num_refused += static_cast<int64_t>(overflow.num_refused);
  }
  return Status();
}

Status RunGpuFindOrInsert(const GpuExec& exec, const GpuTableKeys& in, const GpuUses& uses,
                          const GpuInsertPlan& plan, const GpuEvicted& evicted,
                          const GpuLookupOutput& out) {
  FE_RETURN_IF_ERROR(CheckGpuTableKeys(in));
  FE_RETURN_IF_ERROR(CheckGpuLookupOutput(in, out));
  FE_RETURN_IF_ERROR(CheckGpuInsertPlan(in, plan));
  FE_RETURN_IF_ERROR(CheckGivenScores(in, uses.scores));
  FE_RETURN_IF_ERROR(CheckEvicted(in, evicted));
  FE_RETURN_IF_ERROR(CheckGpuUses(in, uses));
  std::vector<TableOfBatch> tables = TablesOfRun(in, plan, evicted, out.values);
  for (size_t t = 0; t < tables.size(); ++t) {
    tables[t].version = SaturatedVersion(uses.steps[static_cast<int64_t>(t)]);
  }
  UploadedBatch uploaded;
  FE_RETURN_IF_ERROR(uploaded.Upload(exec, tables, in));
  ChangeTables(in);
  const EntryUpdate update = {uses.counts.data, uses.scores.data, nullptr, nullptr};
  FE_RETURN_IF_ERROR(RunInsert(exec, uploaded.batch(), update, plan, evicted, out.handles.data));
  if (out.values.empty()) return Status();
  return ReadValues(exec, uploaded.batch(), out.handles.data, /*is_insert=*/true);
}

Status RunGpuUpsert(const GpuExec& exec, const GpuTableKeys& in, const GpuContent& content,
                    const GpuInsertPlan& plan, const GpuEvicted& evicted) {
  FE_RETURN_IF_ERROR(CheckGpuTableKeys(in));
  FE_RETURN_IF_ERROR(CheckGpuInsertPlan(in, plan));
  FE_RETURN_IF_ERROR(CheckGivenScores(in, content.scores));
  FE_RETURN_IF_ERROR(CheckEvicted(in, evicted));
  if (content.frequencies.size != in.keys.size || content.versions.size != in.keys.size ||
      content.rows.size != in.tables.size) {
    return InvalidArgument("content must have a frequency and a version for each of ", in.keys.size,
                           " keys and rows of ", in.tables.size, " tables, got ",
                           content.frequencies.size, ", ", content.versions.size, " and ",
                           content.rows.size);
  }
  std::vector<TableOfBatch> tables = TablesOfRun(in, plan, evicted, {});
  for (size_t t = 0; t < tables.size(); ++t) {
    tables[t].content = content.rows[static_cast<int64_t>(t)];
    if (tables[t].content != nullptr || tables[t].begin == tables[t].end) continue;
    return InvalidArgument("rows[", t, "] is null, but table ", t, " has keys");
  }
  UploadedBatch uploaded;
  DeviceBuffer<int64_t> handles;
  FE_RETURN_IF_ERROR(uploaded.Upload(exec, tables, in));
  FE_RETURN_IF_ERROR(handles.Allocate(exec, in.keys.size));
  ChangeTables(in);
  const EntryUpdate update = {nullptr, content.scores.data, content.frequencies.data,
                              content.versions.data};
  FE_RETURN_IF_ERROR(RunInsert(exec, uploaded.batch(), update, plan, evicted, handles.data()));
  return EraseCounts(exec, in);
}

}  // namespace fused_embedding
