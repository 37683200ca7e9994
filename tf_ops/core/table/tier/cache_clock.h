#ifndef FUSED_EMBEDDING_CORE_TABLE_TIER_CACHE_CLOCK_H_
#define FUSED_EMBEDDING_CORE_TABLE_TIER_CACHE_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/table/hash_index.h"

namespace fused_embedding {

// Which rows leave DRAM first: those used longest ago, or least often.
enum class CacheStrategy { kLru, kLfu };

// What an operation is to the rows that it finds: an update none, a lookup one now, a prefetch the
// one of the lookup that comes.
enum class RowUse { kNone, kNow, kSoon };

// What DRAM knows of its rows as a cache of a cold store: a byte a row. Off, it costs nothing. Not
// thread-safe.
//
// A hand goes round the rows and takes a chance from each; one that has none left leaves
// (second-chance, or CLOCK: F. J. Corbato, A Paging Experiment with the Multics System, 1968). With
// kLru a use gives a row its one chance back. With kLfu each use gives it one more, up to 15
// (GCLOCK: A. J. Smith, ACM TODS 3(3), 1978).
//
// A new row takes the place of the one that left, right behind the hand, which comes to it last: it
// has a whole round to be used again, and begins without a chance.
//
// With kLfu a row also knows how often it was used ever. One that was used half as often again as
// rows that leave is frequent: it begins with as many chances as its frequency has bits, and where
// it has used up its chances it gets a few more, once until it is used again. (TinyLFU compares
// frequencies by a sketch: G. Einziger, R. Friedman and B. Manes, ACM TOS 13(4), 2017.)
// docs/decisions/027 has what that is worth. A row that is to be used soon is spared once more, and
// its use is not counted again when it comes.
class CacheClock {
 public:
  bool is_on() const { return !is_off_; }
  int64_t memory_bytes() const { return static_cast<int64_t>(states_.capacity()); }
  void TurnOn(CacheStrategy strategy);
  void Reserve(int64_t num_rows);  // rows are numbered below it from then on
  void Clear();

  // Of a new row: the store has no such row.
  void Add(int64_t row) {
    if (is_on()) states_[Index(row)] = kAlive | kDirty;
  }
  // Of a new row that the store has too.
  void AddClean(int64_t row, uint32_t frequency, RowUse use);
  void Remove(int64_t row) {
    if (is_on()) states_[Index(row)] = 0;
  }
  // Of a row that was there.
  FE_INLINE void Use(int64_t row, RowUse use) {
    uint8_t& state = states_[Index(row)];
    if (use == RowUse::kNone) return;
    if ((state & kExpected) == 0 && (state & kChances) < max_chances_) ++state;
    state = (use == RowUse::kSoon ? state | kExpected : state & ~kExpected) & ~kSpared;
  }
  FE_INLINE void Change(int64_t row) {
    if (is_on()) states_[Index(row)] |= kDirty;
  }
  // Whether the store lacks what the row has.
  bool IsDirty(int64_t row) const { return (states_[Index(row)] & kDirty) != 0; }
  void SetClean(int64_t row) { states_[Index(row)] &= static_cast<uint8_t>(~kDirty); }

  // The row below `num_rows` that leaves next; one of them is alive. frequency(row) of those asked.
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
  // Of a row without a chance: whether it gets some, or else leaves.
  bool Spare(uint32_t row, uint32_t frequency);

  bool is_off_ = true;
  uint8_t max_chances_ = 0;
  int64_t hand_ = 0;
  double frequency_of_leaving_ = 0.0;  // the average of the last rows that left
  std::vector<uint8_t> states_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TIER_CACHE_CLOCK_H_
