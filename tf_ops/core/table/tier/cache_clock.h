#ifndef FUSED_EMBEDDING_CORE_TABLE_TIER_CACHE_CLOCK_H_
#define FUSED_EMBEDDING_CORE_TABLE_TIER_CACHE_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/table/hash_index.h"

namespace fused_embedding {

// Which rows are demoted from DRAM first: those used longest ago, or least often.
enum class CacheStrategy { kLru, kLfu };

// How an operation counts as a use of the rows that it finds: an update is no use (kNone), a lookup
// is one (kNow), and a prefetch announces the use by a later lookup (kSoon).
enum class RowUse { kNone, kNow, kSoon };

// Selects the rows to demote from DRAM to a cold store. It has one byte per row, which holds the
// row's CLOCK count. While it is off, it costs nothing. Not thread-safe.
//
// A hand cycles through the rows and decrements the CLOCK count of each; a row whose count is zero
// is demoted (second-chance, or CLOCK: F. J. Corbato, A Paging Experiment with the Multics System,
// 1968). With kLru a use sets the count to 1. With kLfu a use increments it, up to 15 (GCLOCK: A.
// J. Smith, ACM TODS 3(3), 1978).
//
// A new row gets the number of the row that was demoted, just behind the hand, which reaches it
// last. So it starts with a count of zero and has a whole cycle to be used again.
//
// With kLfu the total number of uses of a row, its frequency, also matters. A row is frequent if
// its frequency is more than 1.5 times the average of recently demoted rows. Its initial count is
// then the number of bits of its frequency, and its count is refilled to 3 when it reaches zero,
// once until the next use. (TinyLFU compares frequencies by a sketch: G. Einziger, R. Friedman and
// B. Manes, ACM TOS 13(4), 2017.) docs/decisions/027 has the effect on hits.
//
// A prefetched row is skipped once more by the hand, and the lookup that follows is not counted as
// a second use.
class CacheClock {
 public:
  bool is_on() const { return !is_off_; }
  int64_t memory_bytes() const { return static_cast<int64_t>(states_.capacity()); }
  void TurnOn(CacheStrategy strategy);
  void Reserve(int64_t num_rows);  // row numbers are below `num_rows` from now on
  void Clear();

  // Adds a new row that the store does not have.
  void Add(int64_t row) {
    if (is_on()) states_[Index(row)] = kAlive | kDirty;
  }
  // Adds a row that was read from the store.
  void AddClean(int64_t row, uint32_t frequency, RowUse use);
  void Remove(int64_t row) {
    if (is_on()) states_[Index(row)] = 0;
  }
  // Counts a use of a row in DRAM.
  FE_INLINE void Use(int64_t row, RowUse use) {
    uint8_t& state = states_[Index(row)];
    if (use == RowUse::kNone) return;
    if ((state & kExpected) == 0 && (state & kChances) < max_chances_) ++state;
    state = (use == RowUse::kSoon ? state | kExpected : state & ~kExpected) & ~kSpared;
  }
  FE_INLINE void Change(int64_t row) {
    if (is_on()) states_[Index(row)] |= kDirty;
  }
  // Whether the row differs from the store's, so that its demotion needs a write-back.
  bool IsDirty(int64_t row) const { return (states_[Index(row)] & kDirty) != 0; }
  void SetClean(int64_t row) { states_[Index(row)] &= static_cast<uint8_t>(~kDirty); }

  // The row to demote next, of those below `num_rows`, at least one of which must be alive. Calls
  // frequency(row) for candidates.
  template <typename Frequency>
  uint32_t Next(int64_t num_rows, const Frequency& frequency) {
    for (;;) {
      const uint32_t row = WithoutChance(num_rows);
      if (!Spare(row, frequency(row))) return row;
    }
  }

 private:
  static constexpr uint8_t kAlive = 0x80, kDirty = 0x40, kExpected = 0x20, kSpared = 0x10;
  static constexpr uint8_t kChances = 0x0f, kOneChance = 1;
  static size_t Index(int64_t row) { return static_cast<size_t>(row); }
  bool IsFrequent(uint32_t frequency) const {
    return max_chances_ > kOneChance && frequency > 1.5 * frequency_of_leaving_;
  }
  uint32_t WithoutChance(int64_t num_rows);
  // Called for a row whose count is zero: refills the count and returns true, or false if the row
  // is to be demoted.
  bool Spare(uint32_t row, uint32_t frequency);

  bool is_off_ = true;
  uint8_t max_chances_ = 0;
  int64_t hand_ = 0;
  double frequency_of_leaving_ = 0.0;  // moving average over demoted rows
  std::vector<uint8_t> states_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TIER_CACHE_CLOCK_H_
