#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/buckets.cu.h"

namespace fused_embedding {
namespace {

// The first `kept_bytes` of a row stay, and what follows is that of a new row. One group of lanes
// copies a bucket.
__global__ void WidenRowsKernel(GpuTableView from, GpuTableView to, int64_t num_buckets,
                                int64_t kept_bytes) {
  const Lanes lanes(kBucketLanes);
  const GpuRowFormat& format = to.format;
  const char* added = format.behind_value + (kept_bytes - format.value_bytes);
  for (int64_t b = lanes.GroupOfGrid(); b < num_buckets; b += lanes.NumGroupsOfGrid()) {
    const uint32_t number = static_cast<uint32_t>(b);
    const Bucket* bucket = from.bucket(number);
    CopyRow(lanes, reinterpret_cast<const char*>(bucket), int64_t{sizeof(Bucket)},
            reinterpret_cast<char*>(to.bucket(number)));
    for (int entry = 0; entry < kEntries; ++entry) {
      if (bucket->digests[entry] == 0) continue;
      const int64_t handle = HandleOf(number, entry);
      CopyRow(lanes, from.row(handle), kept_bytes, to.row(handle));
      CopyRow(lanes, added, format.row_bytes - kept_bytes, to.row(handle) + kept_bytes);
    }
  }
}

}  // namespace

Status GpuTable::CopyRowsTo(const GpuExec& exec, const GpuTable& wider) const {
  const RowLayout& layout = config_.layout;
  const int64_t kept_bytes = layout.slots_offset() - layout.value_offset() +
                             layout.slot_width() * layout.slot_number_bytes();
  return Launch(exec, num_buckets_ * kBucketLanes, WidenRowsKernel, view(), wider.view(),
                num_buckets_, kept_bytes);
}

}  // namespace fused_embedding
