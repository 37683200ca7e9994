#include <vector>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/batch.cu.h"
#include "tf_ops/core/table/gpu/count_keys.cu.h"
#include "tf_ops/core/table/gpu/owned_bucket.cu.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {
namespace {

// What a batch does to the entries of its keys.
struct EntryUpdate {
  const int32_t* counts;        // or null: one each
  const uint64_t* scores;       // kGiven
  const uint32_t* frequencies;  // null: a training lookup; else the content's, with `versions`
  const uint32_t* versions;

  __device__ bool is_content() const { return frequencies != nullptr; }

  // By the lanes that own the bucket.
  __device__ void Apply(const TableOfBatch& table, int64_t position, Bucket* bucket,
                        int entry) const {
    if (is_content()) {
      bucket->frequencies[entry] = frequencies[position];
      bucket->versions[entry] = versions[position];
    } else {
      bucket->frequencies[entry] = Sum(bucket->frequencies[entry], position);
      bucket->versions[entry] = table.version;
    }
    if (table.view.eviction == GpuEviction::kGiven) bucket->scores[entry] = scores[position];
  }

  // Of a row that the lookup found. A key that occurs twice is counted by two threads at once.
  __device__ void Count(const TableOfBatch& table, int64_t position, Bucket* bucket,
                        int entry) const {
    uint32_t* frequency = &bucket->frequencies[entry];
    for (uint32_t old = *frequency, expected = old + 1; old != expected;) {
      expected = old;
      old = atomicCAS(frequency, expected, Sum(expected, position));
    }
    bucket->versions[entry] = table.version;
  }

 private:
  __device__ uint32_t Sum(uint32_t frequency, int64_t position) const {
    constexpr int64_t kMaxFrequency = 0xffffffff;
    const int64_t count = counts ? counts[position] : 1;
    const int64_t sum = int64_t{frequency} + (count > 0 ? count : 0);
    return static_cast<uint32_t>(sum < kMaxFrequency ? sum : kMaxFrequency);
  }
};

// The rows of keys that have one, but for those that owners handle.
__global__ void CountFoundKernel(Batch batch, EntryUpdate update,
                                 const int64_t* __restrict__ handles) {
  for (int64_t i = ThreadOfGrid(); i < batch.num_keys; i += NumThreadsOfGrid()) {
    const int64_t handle = handles[i];
    if (handle < 0) continue;
    const TableOfBatch& table = batch.tables[batch.TableOf(i)];
    if (table.view.eviction == GpuEviction::kGiven) continue;
    Bucket* bucket = table.view.bucket(static_cast<uint32_t>(handle / kEntries));
    update.Count(table, i, bucket, static_cast<int>(handle % kEntries));
  }
}

__device__ void KeepEvicted(const GpuTableView& view, const Bucket& bucket, int entry,
                            int64_t position, const Assigned& assigned) {
  if (!assigned.evicted_row) return;
  assigned.evicted_row[position] = 1;
  assigned.evicted[position] = {bucket.keys[entry], bucket.Score(view.eviction, entry),
                                bucket.frequencies[entry], bucket.versions[entry]};
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
        owned(lanes, table.view.eviction, bucket, PinsOf(assigned.pins, table, number)) {}

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
      if (is_evicting) KeepEvicted(view, *bucket, entry, position, assigned);
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
      const int64_t position = position_of(i), handle = assigned.handles[position];
      if (lanes.lane == 0) assigned.is_written[position] = false;
      if (handle >= 0) keys.Use(position, static_cast<int>(handle % kEntries), /*is_new=*/false);
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

Status CountFound(const GpuExec& exec, const Batch& batch, const EntryUpdate& update,
                  const GpuInsertPlan& plan) {
  if (plan.is_for_content) return Status();
  return Launch(exec, batch.num_keys, CountFoundKernel, batch, update, plan.handles.data());
}

// All keys, where owners handle some; `handles` are those of the plan before.
Status RunOwners(const GpuExec& exec, const Batch& batch, const EntryUpdate& update,
                 const GpuInsertPlan& plan, const GpuEvicted& evicted, int64_t* handles) {
  DeviceBuffer<bool> is_written;
  DeviceBuffer<int32_t> evicted_row, evicted_before;
  DeviceBuffer<EvictedEntry> evicted_entries;
  FE_RETURN_IF_ERROR(is_written.Allocate(exec, batch.num_keys));
  if (!evicted.rows.empty()) {
    FE_RETURN_IF_ERROR(evicted_row.Allocate(exec, batch.num_keys + 1));
    FE_RETURN_IF_ERROR(evicted_before.Allocate(exec, batch.num_keys + 1));
    FE_RETURN_IF_ERROR(evicted_entries.Allocate(exec, batch.num_keys));
    FE_RETURN_IF_ERROR(Fill(exec, 0, evicted_row.span()));
  }
  // Nothing fails from here on but for the numbers of evicted rows.
  FE_RETURN_IF_ERROR(CountFound(exec, batch, update, plan));
  Assigned assigned = {handles, plan.pins.data(), is_written.data(), evicted_row.data(),
                       evicted_entries.data()};
  const SortedBatch sorted = {batch, plan.order.size(), plan.buckets.data(), plan.order.data()};
  FE_RETURN_IF_ERROR(
      Launch(exec, sorted.num_keys * kBucketLanes, AssignKernel, sorted, update, assigned));
  const Status numbered =
      evicted.rows.empty()
          ? Status()
          : NumberEvicted(exec, batch, assigned, evicted_before.span(), evicted.num_rows.data);
  // Evicted rows are lost then, but new ones are not left without values.
  if (!numbered.ok()) assigned.evicted_row = nullptr;
  const Status written = WriteRows(exec, sorted, assigned, evicted_before.data());
  return numbered.ok() ? written : numbered;
}

Status RunInsert(const GpuExec& exec, const Batch& batch, const EntryUpdate& update,
                 const GpuInsertPlan& plan, const GpuEvicted& evicted, int64_t* handles) {
  FE_RETURN_IF_ERROR(CopyArray<int64_t>(exec, plan.handles.span(), handles));
  if (plan.order.size() > 0) return RunOwners(exec, batch, update, plan, evicted, handles);
  if (!evicted.rows.empty()) FE_RETURN_IF_ERROR(Fill(exec, 0, evicted.num_rows));
  return CountFound(exec, batch, update, plan);
}

}  // namespace

Status RunGpuFindOrInsert(const GpuExec& exec, const GpuTableKeys& in, const GpuUses& uses,
                          const GpuInsertPlan& plan, const GpuEvicted& evicted,
                          const GpuLookupOutput& out) {
  FE_RETURN_IF_ERROR(CheckGpuTableKeys(in));
  FE_RETURN_IF_ERROR(CheckGpuLookupOutput(in, out));
  FE_RETURN_IF_ERROR(CheckGpuInsertPlan(in, plan, /*is_for_content=*/false));
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
  FE_RETURN_IF_ERROR(CheckGpuInsertPlan(in, plan, /*is_for_content=*/true));
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
