// Buckets in device memory, and how a group of lanes searches one.

#ifndef FUSED_EMBEDDING_CORE_TABLE_GPU_BUCKETS_CU_H_
#define FUSED_EMBEDDING_CORE_TABLE_GPU_BUCKETS_CU_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/table/first_value.h"
#include "tf_ops/core/table/gpu/gpu_table.h"

namespace fused_embedding {

constexpr int kEntriesPerLane = 16;  // the digests of one 16-byte load
constexpr int kBucketLanes = kEntries / kEntriesPerLane;
constexpr uint32_t kLaneMask = (1u << kEntriesPerLane) - 1;
constexpr int kMaxPieces = 32;  // 2^31 buckets, doubled from one

// Occupancy is in the digest: a key needs no reserved value.
struct alignas(64) Bucket {
  uint8_t digests[kEntries];  // 0: free
  int64_t keys[kEntries];
  uint64_t scores[kEntries];
  uint32_t frequencies[kEntries];
  uint32_t versions[kEntries];

  // Rows are evicted in the order of their scores. `scores` has the given ones alone.
  __device__ uint64_t Score(GpuEviction eviction, int entry) const {
    const uint64_t frequency = frequencies[entry], version = versions[entry];
    switch (eviction) {
      case GpuEviction::kNone:
        return 0;
      case GpuEviction::kLru:
        return version << 32 | frequency;
      case GpuEviction::kLfu:
        return frequency << 32 | version;
      case GpuEviction::kGiven:
        return scores[entry];
    }
    return 0;
  }
};
static_assert(sizeof(Bucket) == kEntryBytes * kEntries);

__device__ inline int64_t HandleOf(uint32_t bucket, int entry) {
  return int64_t{bucket} * kEntries + entry;
}

// What a first value depends on besides the key.
struct FirstValues {
  InitializerKind kind;
  double a, b;
  ValueRange range;  // kUniform
  uint64_t seed_state;
  const char* matrix;  // kMatrix
  int64_t matrix_rows;
};

struct GpuRowFormat {
  ValueType value_type;
  int64_t dim, value_bytes, row_bytes;
  const char* behind_value;  // of a new row, [row_bytes - value_bytes]
  FirstValues first_values;
  bool counts_first;  // keys without a row read this:
  double no_permission_value;
};

struct Piece {
  Bucket* buckets;
  char* rows;  // [buckets, kEntries, row_bytes]
};

// The highest set bit's number plus one, or 0.
__device__ inline int BitWidth(uint32_t value) { return 32 - __clz(static_cast<int>(value)); }

struct GpuTableView {
  Piece pieces[kMaxPieces];
  int min_buckets_log2;
  uint32_t mask;  // number of buckets less one
  uint64_t hash_key;
  GpuEviction eviction;
  GpuRowFormat format;

  __device__ uint64_t Hash(int64_t key) const {
    return Mix64(static_cast<uint64_t>(key) ^ hash_key);
  }
  __device__ uint32_t BucketOf(uint64_t hash) const { return static_cast<uint32_t>(hash) & mask; }
  __device__ static uint8_t Digest(uint64_t hash) {
    const uint8_t digest = static_cast<uint8_t>(hash >> 48);
    return static_cast<uint8_t>(digest + (digest == 0));
  }
  __device__ Bucket* bucket(uint32_t number) const {
    const int piece = PieceOf(number);
    return pieces[piece].buckets + InPiece(piece, number);
  }
  __device__ char* row(int64_t handle) const {
    const uint32_t number = static_cast<uint32_t>(handle / kEntries);
    const int piece = PieceOf(number);
    return pieces[piece].rows +
           (InPiece(piece, number) * kEntries + handle % kEntries) * format.row_bytes;
  }

 private:
  __device__ int PieceOf(uint32_t number) const { return BitWidth(number >> min_buckets_log2); }
  // Piece p > 0 begins at bucket min_buckets * 2^(p - 1).
  __device__ int64_t InPiece(int piece, uint32_t number) const {
    const int64_t begin = piece == 0 ? 0 : int64_t{1} << (min_buckets_log2 + piece - 1);
    return number - begin;
  }
};

// A bit for each of the lane's 16 entries whose digest is `digest`; 0: the free ones.
__device__ inline uint32_t MatchDigests(const Bucket& bucket, int lane, uint8_t digest) {
  const uint4 digests = reinterpret_cast<const uint4*>(bucket.digests)[lane];
  const uint32_t pattern = digest * 0x01010101u;
  const uint32_t words[] = {digests.x, digests.y, digests.z, digests.w};
  uint32_t matches = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // The high bit of each byte that is zero, without a carry into the next.
    const uint32_t difference = words[i] ^ pattern;
    const uint32_t high = ~(((difference & 0x7f7f7f7fu) + 0x7f7f7f7fu) | difference | 0x7f7f7f7fu);
    // Bits 7, 15, 23 and 31 become bits 28 to 31; no two terms of the product share a bit.
    matches |= (((high >> 7) * 0x10204080u) >> 28) << (4 * i);
  }
  return matches;
}

// The entry of a key in its bucket, or -1; on all lanes.
__device__ inline int FindEntry(const Lanes& lanes, const Bucket& bucket, int64_t key,
                                uint8_t digest) {
  int found = 0;
  for (uint32_t matches = MatchDigests(bucket, lanes.lane, digest); matches != 0;
       matches &= matches - 1) {
    const int entry = lanes.lane * kEntriesPerLane + __ffs(static_cast<int>(matches)) - 1;
    if (bucket.keys[entry] == key) found = entry + 1;
  }
  return lanes.Sum(found) - 1;  // one lane found it, or none
}

template <typename Word>
__device__ void CopyWords(const Lanes& lanes, const char* from, int64_t bytes, char* to) {
  const Word* source = reinterpret_cast<const Word*>(from);
  Word* target = reinterpret_cast<Word*>(to);
  const int64_t num_words = bytes / int64_t{sizeof(Word)};
  for (int64_t i = lanes.lane; i < num_words; i += lanes.size) target[i] = source[i];
}

// By the largest word that the addresses and the size allow; a value has two bytes at least.
__device__ inline void CopyRow(const Lanes& lanes, const char* from, int64_t bytes, char* to) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) |
                        static_cast<uint64_t>(bytes);
  if (bits % 16 == 0) return CopyWords<uint4>(lanes, from, bytes, to);
  if (bits % 4 == 0) return CopyWords<uint32_t>(lanes, from, bytes, to);
  if (bits % 2 == 0) return CopyWords<uint16_t>(lanes, from, bytes, to);
  CopyWords<uint8_t>(lanes, from, bytes, to);
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_GPU_BUCKETS_CU_H_
