// Whether a key has been seen often enough to get a row.

#ifndef FUSED_EMBEDDING_CORE_TABLE_ADMISSION_H_
#define FUSED_EMBEDDING_CORE_TABLE_ADMISSION_H_

#include <cstdint>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/page_memory.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/change_log.h"

namespace fused_embedding {

enum class AdmissionKind {
  kAll,      // every key at its first occurrence
  kCounter,  // after `min_frequency` occurrences, counted exactly: a header a key
  kBloom,    // the same, counted in a counting Bloom filter: fixed memory, sometimes too early
};

// The value of the attr `admission` of the op that makes a table.
const char* AdmissionKindName(AdmissionKind kind);

struct AdmissionConfig {
  AdmissionKind kind = AdmissionKind::kAll;
  int64_t min_frequency = 0;   // kBloom: at most 65535
  int64_t bloom_counters = 0;  // kBloom: of the whole table
  int64_t bloom_hashes = 0;    // kBloom: counters a key, 1 to 16
};

// InvalidArgument for numbers out of range.
Status CheckAdmission(const AdmissionConfig& config);

// The new content of a line of a Bloom filter's counters, for incremental saves.
struct BloomLine {
  int64_t number;  // in the whole table: the lines of all shards are numbered in sequence
  char counters[64];
};
static_assert(sizeof(BloomLine) == 72);

// Blocked counting Bloom filter: all counters of a key are in one cache line. Counters are as small
// as min_frequency allows (8 bits up to 255, else 16) and saturate. Updates are conservative: only
// the smallest counters of a key are incremented. Each shard of a table owns a filter, which its
// lock guards.
//
// A filter of m counters and k hashes is sized for n = m ln(2) / k keys. With n keys, a fraction of
// 2^-k of other keys counts as seen. Keys fill the lines unevenly, which costs memory: a filter
// has 1.04 m counters of 8 bits for k = 3, 1.33 m for k = 7, 1.77 m for k = 10, 3.92 m for k = 16.
class CountingBloomFilter {
 public:
  // InvalidArgument for numbers out of range, ResourceExhausted if memory runs out.
  static Status Create(int64_t num_counters, int64_t num_hashes, int64_t min_frequency,
                       CountingBloomFilter* filter);

  static constexpr int64_t kLineBytes = 64;

  static int64_t CounterBytes(int64_t min_frequency) { return min_frequency <= 255 ? 1 : 2; }

  void Prefetch(uint64_t hash) const {
    if (num_lines_ > 0) __builtin_prefetch(LineOf(Scramble(hash)));
  }
  // Adds `count` occurrences; returns the estimated total so far, saturated.
  int64_t Add(uint64_t hash, int64_t count);
  int64_t Estimate(uint64_t hash) const;

  // The counters as bytes, for checkpoints. Restore refuses bytes of a filter of another size.
  Span<const char> bytes() const { return {memory_.data(), num_lines_ * kLineBytes}; }
  Status Restore(Span<const char> bytes);
  // Sets each counter, from byte `begin` on, to the greater of itself and that in `counters`.
  // Counters only grow, so merging states of one filter in any order gives the latest state.
  // InvalidArgument if the bytes are not within the filter.
  Status Merge(int64_t begin, Span<const char> counters);
  void Clear();
  // Changes are recorded by line number.
  int64_t num_lines() const { return num_lines_; }
  ChangeLog& changes() { return changes_; }
  int64_t memory_bytes() const { return bytes().size; }

 private:
  // The same hash selects the shard, so its bits are mixed again.
  static uint64_t Scramble(uint64_t hash) { return Mix64(hash + 0x9e3779b97f4a7c15ULL); }
  char* LineOf(uint64_t scrambled) const {
    __extension__ using Wide = unsigned __int128;
    const auto line = (Wide{scrambled} * static_cast<uint64_t>(num_lines_)) >> 64;
    return memory_.data() + static_cast<int64_t>(line) * kLineBytes;
  }
  template <typename Counter>
  int64_t AddTo(uint64_t hash, int64_t count);
  template <typename Counter>
  int64_t EstimateOf(uint64_t hash) const;
  template <typename Counter>
  void MergeAs(char* own, Span<const char> counters);

  int64_t num_hashes_ = 0;
  int64_t counter_bytes_ = 1;
  int64_t num_lines_ = 0;
  PageMemory memory_;
  ChangeLog changes_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_ADMISSION_H_
