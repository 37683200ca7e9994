// Row numbers by hash. The keys are stored in the rows; a search compares them there.

#ifndef FUSED_EMBEDDING_CORE_TABLE_HASH_INDEX_H_
#define FUSED_EMBEDDING_CORE_TABLE_HASH_INDEX_H_

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "tf_ops/core/base/page_memory.h"
#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

constexpr uint32_t kNoRow = 0xffffffffu;

// An array of buckets of one cache line each. A bucket has 12 entries: one byte of the hash each,
// which are compared at once, and their row numbers. If the bucket of an entry is full, the entry
// is stored in the next bucket with a free place. `overflow` counts the entries that a bucket
// passed on, so a search knows where to stop, and erasing needs no tombstones.
//
// Uses bits 0 to 39 and 48 to 55 of a hash. Not thread-safe.
class HashIndex {
 public:
  // Makes an empty index that holds `num_entries` without using more than `max_load` of the slots.
  static Status Create(int64_t num_entries, double max_load, HashIndex* index);

  int64_t size() const { return size_; }
  // Number of entries that fit. For more, the caller must make a larger index.
  int64_t capacity() const { return capacity_; }
  int64_t memory_bytes() const { return memory_.bytes(); }

  FE_INLINE void Prefetch(uint64_t hash) const { __builtin_prefetch(&buckets()[hash & mask_]); }

  // Returns the first row with the tag of this hash in the hash's bucket, or kNoRow. Sets `second`
  // to the next one there, or kNoRow. Sets `is_certain` if no other row can have this hash: if the
  // returned one has another key, the key has no row.
  FE_INLINE uint32_t Candidate(uint64_t hash, uint32_t* second, bool* is_certain) const {
    const Bucket& bucket = buckets()[hash & mask_];
    const uint32_t matches = Matches(bucket, Tag(hash));
    const uint32_t others = matches & (matches - 1);
    *second = others == 0 ? kNoRow : bucket.rows[__builtin_ctz(others)];
    *is_certain = others == 0 && bucket.overflow == 0;
    return matches == 0 ? kNoRow : bucket.rows[__builtin_ctz(matches)];
  }

  // The row with this hash for which `is_row(row)` holds, or kNoRow.
  template <typename IsRow>
  FE_INLINE uint32_t Find(uint64_t hash, const IsRow& is_row) const {
    const uint8_t tag = Tag(hash);
    // The loop is bounded, because an overflow count that has saturated is never decremented.
    for (uint64_t probe = 0; probe <= mask_; ++probe) {
      const Bucket& bucket = buckets()[(hash + probe) & mask_];
      for (uint32_t matches = Matches(bucket, tag); matches != 0; matches &= matches - 1) {
        const uint32_t row = bucket.rows[__builtin_ctz(matches)];
        if (is_row(row)) return row;
      }
      if (bucket.overflow == 0) break;
    }
    return kNoRow;
  }

  // Requires size() < capacity(). The row must not be in the index.
  FE_INLINE void Insert(uint64_t hash, uint32_t row) {
    for (uint64_t home = hash;; ++home) {
      Bucket& bucket = buckets()[home & mask_];
      const uint32_t empty = Matches(bucket, kEmpty);
      if (empty != 0) {
        const int slot = __builtin_ctz(empty);
        bucket.tags[slot] = Tag(hash);
        bucket.rows[slot] = row;
        ++size_;
        return;
      }
      bucket.overflow = static_cast<uint8_t>(bucket.overflow + (bucket.overflow != kSaturated));
    }
  }

  // The row must be in the index.
  void Erase(uint64_t hash, uint32_t row);
  void Clear();

 private:
  static constexpr int kSlots = 12;
  static constexpr uint8_t kEmpty = 0;
  static constexpr uint8_t kSaturated = 255;

  struct alignas(64) Bucket {
    uint8_t tags[kSlots];
    uint8_t overflow;
    uint8_t unused[3];
    uint32_t rows[kSlots];
  };
  static_assert(sizeof(Bucket) == 64);

  Bucket* buckets() const { return reinterpret_cast<Bucket*>(memory_.data()); }

  static FE_INLINE uint8_t Tag(uint64_t hash) {
    const uint8_t tag = static_cast<uint8_t>(hash >> 48);
    return static_cast<uint8_t>(tag + (tag == kEmpty));
  }

  // Bit i: the tag of slot i is `tag`.
  static FE_INLINE uint32_t Matches(const Bucket& bucket, uint8_t tag) {
    constexpr uint32_t kMask = (1u << kSlots) - 1;
#if defined(__SSE2__)
    const __m128i tags = _mm_load_si128(reinterpret_cast<const __m128i*>(bucket.tags));
    const __m128i equal = _mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(tag)));
    return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & kMask;
#else
    uint32_t matches = 0;
    for (int slot = 0; slot < kSlots; ++slot) {
      matches |= static_cast<uint32_t>(bucket.tags[slot] == tag) << slot;
    }
    return matches & kMask;
#endif
  }

  PageMemory memory_;
  uint64_t mask_ = 0;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_HASH_INDEX_H_
