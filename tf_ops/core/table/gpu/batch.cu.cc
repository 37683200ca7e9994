#include "tf_ops/core/table/gpu/batch.cu.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {
namespace {

__global__ void BucketsKernel(Batch batch, uint32_t* __restrict__ buckets) {
  for (int64_t i = ThreadOfGrid(); i < batch.num_keys; i += NumThreadsOfGrid()) {
    buckets[i] = static_cast<uint32_t>(batch.IsUsed(i) ? batch.BucketOf(i) : batch.num_buckets);
  }
}

Status CheckTables(Span<GpuTable* const> tables) {
  constexpr int64_t kMaxBucketsOfCall = (int64_t{1} << 32) - 1;  // and one for unused keys
  int64_t num_buckets = 0;
  for (int64_t t = 0; t < tables.size; ++t) {
    if (tables[t] == nullptr) return InvalidArgument("tables[", t, "] is null; create it first");
    num_buckets += tables[t]->num_buckets();
    if (std::find(tables.begin(), tables.data + t, tables[t]) != tables.data + t) {
      return InvalidArgument("tables[", t, "] occurs twice; pass all keys of a table together");
    }
  }
  if (num_buckets <= kMaxBucketsOfCall) return Status();
  return InvalidArgument("the tables of a call must have at most ", kMaxBucketsOfCall,
                         " buckets, got ", num_buckets, "; pass some of the tables at a time");
}

}  // namespace

Status CheckGpuTableKeys(const GpuTableKeys& in) {
  constexpr int64_t kMaxKeys = std::numeric_limits<int32_t>::max();
  if (in.keys.size > kMaxKeys) {
    return InvalidArgument("a call takes at most ", kMaxKeys, " keys, got ", in.keys.size,
                           "; use a smaller batch");
  }
  if (in.ends.size != in.tables.size) {
    return InvalidArgument("ends must have one number for each of ", in.tables.size,
                           " tables, got ", in.ends.size);
  }
  int64_t begin = 0;
  for (int64_t t = 0; t < in.ends.size; ++t) {
    if (in.ends[t] < begin) {
      return InvalidArgument("ends must be non-decreasing and not negative, but ends[", t,
                             "] = ", in.ends[t], " follows ", begin);
    }
    begin = in.ends[t];
  }
  if (begin != in.keys.size) {
    return InvalidArgument("the last of ends must be the number of keys, ", in.keys.size, ", got ",
                           begin);
  }
  return CheckTables(in.tables);
}

Status CheckGpuLookupOutput(const GpuTableKeys& in, const GpuLookupOutput& out) {
  if (out.handles.size != in.keys.size) {
    return InvalidArgument("handles must have one element for each of ", in.keys.size,
                           " keys, got ", out.handles.size);
  }
  if (out.values.empty()) return Status();
  if (out.values.size != in.tables.size) {
    return InvalidArgument("values must have one array for each of ", in.tables.size,
                           " tables, got ", out.values.size);
  }
  for (int64_t t = 0; t < in.tables.size; ++t) {
    const bool has_keys = in.ends[t] > (t > 0 ? in.ends[t - 1] : 0);
    if (has_keys && out.values[t] == nullptr) {
      return InvalidArgument("values[", t, "] is null, but table ", t, " has keys");
    }
  }
  return Status();
}

Status CheckGpuUses(const GpuTableKeys& in, const GpuUses& uses) {
  if (!uses.counts.empty() && uses.counts.size != in.keys.size) {
    return InvalidArgument("counts must have one number for each of ", in.keys.size, " keys, got ",
                           uses.counts.size);
  }
  if (uses.steps.size == in.tables.size) return Status();
  return InvalidArgument("steps must have one number for each of ", in.tables.size, " tables, got ",
                         uses.steps.size);
}

void ChangeTables(const GpuTableKeys& in) {
  for (GpuTable* table : in.tables) table->Change();
}

std::vector<TableOfBatch> TablesOfBatch(const GpuTableKeys& in, Span<char* const> values) {
  std::vector<TableOfBatch> tables;
  int64_t begin = 0, first_bucket = 0;
  for (int64_t t = 0; t < in.tables.size; ++t) {
    TableOfBatch table = {begin, in.ends[t], first_bucket, in.tables[t]->view()};
    if (!values.empty()) table.values = values[t];
    tables.push_back(table);
    begin = in.ends[t];
    first_bucket += in.tables[t]->num_buckets();
  }
  return tables;
}

Status UploadedBatch::Upload(const GpuExec& exec, const std::vector<TableOfBatch>& tables,
                             const GpuTableKeys& in) {
  FE_RETURN_IF_ERROR(fused_embedding::Upload<TableOfBatch>(exec, AsSpan(tables), &tables_));
  int64_t row_bytes = 0, num_buckets = 0;
  for (const TableOfBatch& table : tables) {
    row_bytes = std::max(row_bytes, table.view.format.row_bytes);
    num_buckets += int64_t{table.view.mask} + 1;
  }
  batch_ = {tables_.data(), tables_.size(),          in.keys.data, in.keys.size, in.is_used,
            num_buckets,    NumLanes(row_bytes / 16)};
  return Status();
}

Status SortByBucket(const GpuExec& exec, const Batch& batch, DeviceBuffer<uint32_t>* buckets,
                    DeviceBuffer<int32_t>* order) {
  DeviceBuffer<uint32_t> unsorted;
  FE_RETURN_IF_ERROR(unsorted.Allocate(exec, batch.num_keys));
  FE_RETURN_IF_ERROR(Launch(exec, batch.num_keys, BucketsKernel, batch, unsorted.data()));
  SortedKeys sorted;
  FE_RETURN_IF_ERROR(SortByKey(exec, unsorted.span(), batch.num_buckets + 1, &sorted));
  *buckets = std::move(sorted.keys);
  *order = std::move(sorted.order);
  return Status();
}

}  // namespace fused_embedding
