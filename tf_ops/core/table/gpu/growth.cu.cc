#include "tf_ops/core/table/gpu/growth.cu.h"

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/buckets.cu.h"

namespace fused_embedding {
namespace {

struct GrowingTable {
  Range blocks;
  GpuTableView view;  // with twice the buckets
};

__device__ void CopyEntry(const Bucket& from, int entry, Bucket* to) {
  to->keys[entry] = from.keys[entry];
  to->scores[entry] = from.scores[entry];
  to->frequencies[entry] = from.frequencies[entry];
  to->versions[entry] = from.versions[entry];
}

// The rows of bucket b stay, or move to the same entry of bucket b + half. One group of lanes owns
// both buckets.
__device__ void SplitBucket(const Lanes& lanes, const GpuTableView& view, uint32_t number,
                            uint32_t half) {
  Bucket* old_bucket = view.bucket(number);
  Bucket* new_bucket = view.bucket(number + half);
  const auto moves = [&](int entry) {
    return old_bucket->digests[entry] != 0 && (view.Hash(old_bucket->keys[entry]) & half) != 0;
  };
  const int64_t num_vectors = view.format.row_bytes / int64_t{sizeof(uint4)};
  for (int entry = 0; entry < kEntries; ++entry) {
    if (!moves(entry)) continue;
    if (lanes.lane == 0) CopyEntry(*old_bucket, entry, new_bucket);
    const uint4* from = reinterpret_cast<const uint4*>(view.row(HandleOf(number, entry)));
    uint4* to = reinterpret_cast<uint4*>(view.row(HandleOf(number + half, entry)));
    for (int64_t v = lanes.lane; v < num_vectors; v += lanes.size) to[v] = from[v];
  }
  lanes.Sync();  // all lanes have read the digests
  for (int entry = lanes.lane; entry < kEntries; entry += lanes.size) {
    if (!moves(entry)) continue;
    new_bucket->digests[entry] = old_bucket->digests[entry];
    old_bucket->digests[entry] = 0;
  }
}

__global__ void SplitBucketsKernel(const GrowingTable* __restrict__ tables, int64_t num_tables) {
  const Lanes lanes(kBucketLanes);
  const GrowingTable& table = ItemOfBlock(tables, num_tables, &GrowingTable::blocks);
  const int64_t half = (int64_t{table.view.mask} + 1) / 2;
  const int64_t num_groups = (table.blocks.end - table.blocks.begin) * lanes.num_groups();
  for (int64_t b = lanes.GroupOf(table.blocks); b < half; b += num_groups) {
    SplitBucket(lanes, table.view, static_cast<uint32_t>(b), static_cast<uint32_t>(half));
  }
}

Status AddPieces(const GpuExec& exec, const std::vector<GpuTable*>& tables, size_t* num_added) {
  // Four for each group of lanes: fewer blocks than one for each would be.
  constexpr int64_t kBucketsOfBlock = 4 * kBlockSize / kBucketLanes;
  std::vector<GrowingTable> growing;
  int64_t num_blocks = 0;
  for (GpuTable* table : tables) {
    const int64_t num_split = table->num_buckets();
    FE_RETURN_IF_ERROR(table->AddPiece(exec));
    ++*num_added;
    growing.push_back({TakeBlocks(num_split, kBucketsOfBlock, &num_blocks), table->view()});
  }
  DeviceBuffer<GrowingTable> device_tables;
  FE_RETURN_IF_ERROR(Upload<GrowingTable>(exec, AsSpan(growing), &device_tables));
  return LaunchBlocks(exec, num_blocks, SplitBucketsKernel, device_tables.data(),
                      device_tables.size());
}

}  // namespace

Status DoubleGpuTables(const GpuExec& exec, const std::vector<GpuTable*>& tables) {
  size_t num_added = 0;
  const Status status = AddPieces(exec, tables, &num_added);
  // Without the launch no row has moved: a table without its new piece is what it was.
  for (size_t t = 0; t < num_added && !status.ok(); ++t) tables[t]->RemovePiece();
  return status;
}

}  // namespace fused_embedding
