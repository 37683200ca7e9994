// What the lanes that own a bucket know of it while they insert.

#ifndef FUSED_EMBEDDING_CORE_TABLE_GPU_OWNED_BUCKET_CU_H_
#define FUSED_EMBEDDING_CORE_TABLE_GPU_OWNED_BUCKET_CU_H_

#include <cstdint>

#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/table/gpu/batch.cu.h"

namespace fused_embedding {

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
__device__ inline Victim FirstOf(const Lanes& lanes, Victim victim) {
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
  // `pins`: a bit for each entry that is pinned from the start.
  __device__ OwnedBucket(const Lanes& lanes, GpuEviction eviction, const Bucket* bucket,
                         unsigned long long pins)
      : lanes_(lanes),
        eviction_(eviction),
        bucket_(bucket),
        free_(MatchDigests(*bucket, lanes.lane, 0)),
        pinned_(static_cast<uint32_t>(pins >> (lanes.lane * kEntriesPerLane)) & kLaneMask) {}

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
      const Victim other = {bucket_->Score(eviction_, entry), bucket_->keys[entry], entry};
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
  GpuEviction eviction_;
  const Bucket* bucket_;
  uint32_t free_, pinned_;
};

// Of a plan, which may have none.
__device__ inline unsigned long long PinsOf(const unsigned long long* pins,
                                            const TableOfBatch& table, uint32_t bucket) {
  return pins ? pins[table.first_bucket + bucket] : 0;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_GPU_OWNED_BUCKET_CU_H_
