// A batch of keys of several tables: which table a key is of, and the keys of each bucket.

#ifndef FUSED_EMBEDDING_CORE_TABLE_GPU_BATCH_CU_H_
#define FUSED_EMBEDDING_CORE_TABLE_GPU_BATCH_CU_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/table/gpu/buckets.cu.h"
#include "tf_ops/core/table/gpu/gpu_table.h"

namespace fused_embedding {

struct TableOfBatch {
  int64_t begin, end;    // of the table's keys
  int64_t first_bucket;  // buckets of all tables are numbered in sequence
  GpuTableView view;
  char* values = nullptr;         // [end - begin, dim]
  const char* content = nullptr;  // [end - begin, row_bytes]
  uint32_t version = 0;           // of rows that a training lookup reads
  GpuRows evicted = {};           // [max_evicted]
  int64_t max_evicted = 0;
};

struct Batch {
  const TableOfBatch* tables;  // [num_tables]
  int64_t num_tables;
  const int64_t* keys;  // [num_keys]
  int64_t num_keys;
  const bool* is_used;  // [num_keys], or null: all are
  int64_t num_buckets;  // of all tables; the bucket of a key that is not used
  int row_lanes;        // that copy a row: 16 bytes each of the widest table's

  __device__ bool IsUsed(int64_t position) const { return !is_used || is_used[position]; }

  __device__ int64_t TableOf(int64_t position) const {
    return ItemOfPosition(num_tables, position, [&](int64_t t) { return tables[t].end; });
  }
  // The number among the buckets of all tables.
  __device__ int64_t BucketOf(int64_t position) const {
    const TableOfBatch& table = tables[TableOf(position)];
    return table.first_bucket + table.view.BucketOf(table.view.Hash(keys[position]));
  }
};

// Keys of a batch, sorted by bucket.
struct SortedBatch {
  Batch batch;
  int64_t num_keys;         // all, or some of the batch's
  const uint32_t* buckets;  // [num_keys] ascending
  const int32_t* order;     // [num_keys] positions
};

// Calls body(lanes, table, bucket, run) for each bucket that keys of the batch are in, on the lanes
// that own it: the keys are those at order[run.begin] to order[run.end - 1].
template <typename Body>
__device__ void ForEachBucket(const SortedBatch& sorted, const Body& body) {
  const Lanes lanes(kBucketLanes);
  const int64_t num_keys = sorted.num_keys;
  for (int64_t i = lanes.GroupOfGrid(); i < num_keys; i += lanes.NumGroupsOfGrid()) {
    const uint32_t bucket = sorted.buckets[i];
    if (i > 0 && sorted.buckets[i - 1] == bucket) continue;
    if (bucket == sorted.batch.num_buckets) continue;
    Range run = {i, i + 1};
    while (run.end < num_keys && sorted.buckets[run.end] == bucket) ++run.end;
    const int64_t table = sorted.batch.TableOf(sorted.order[i]);
    body(lanes, table, static_cast<uint32_t>(bucket - sorted.batch.tables[table].first_bucket),
         run);
  }
}

// --- Host code ---

// InvalidArgument for tables and sizes that make no sense.
Status CheckGpuTableKeys(const GpuTableKeys& in);
Status CheckGpuLookupOutput(const GpuTableKeys& in, const GpuLookupOutput& out);
Status CheckGpuUses(const GpuTableKeys& in, const GpuUses& uses);
// insert_plan.cu.cc: FailedPrecondition for a plan of other keys, for another call, or of tables
// that have changed.
Status CheckGpuInsertPlan(const GpuTableKeys& in, const GpuInsertPlan& plan, bool is_for_content);

// `values`: one for each table, or empty.
std::vector<TableOfBatch> TablesOfBatch(const GpuTableKeys& in, Span<char* const> values);
// Plans made before are no longer valid.
void ChangeTables(const GpuTableKeys& in);

// Keeps the memory of a Batch.
class UploadedBatch {
 public:
  Status Upload(const GpuExec& exec, const std::vector<TableOfBatch>& tables,
                const GpuTableKeys& in);
  const Batch& batch() const { return batch_; }

 private:
  DeviceBuffer<TableOfBatch> tables_;
  Batch batch_ = {};
};

// Sorts the keys by bucket.
Status SortByBucket(const GpuExec& exec, const Batch& batch, DeviceBuffer<uint32_t>* buckets,
                    DeviceBuffer<int32_t>* order);

// find.cu.cc: [num_keys] handles of the rows of keys, or -1.
Status FindRows(const GpuExec& exec, const Batch& batch, int64_t* handles);

// rows.cu.cc: a value for each key, if `handles` are those of the batch. A used key that was to be
// inserted and has no row was refused: it reads zeros. Others without a row read their first value,
// or the no_permission_value of a table that counts keys first.
Status ReadValues(const GpuExec& exec, const Batch& batch, const int64_t* handles, bool is_insert);

struct EvictedEntry {
  int64_t key;
  uint64_t score;
  uint32_t frequency, version;
};

// What became of the keys of a batch; arrays are [num_keys] by position.
struct Assigned {
  int64_t* handles;
  const unsigned long long* pins;  // of the plan, or null
  bool* is_written;                // the row gets its first value, or what the content says
  int32_t* evicted_row;   // [num_keys + 1] 1: another row was evicted for this one; or null
  EvictedEntry* evicted;  // that row's entry
};

// Copies evicted rows and writes those of the sorted keys that `assigned` says. `evicted_before`
// are the sums of evicted_row.
Status WriteRows(const GpuExec& exec, const SortedBatch& sorted, const Assigned& assigned,
                 const int32_t* evicted_before);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_GPU_BATCH_CU_H_
