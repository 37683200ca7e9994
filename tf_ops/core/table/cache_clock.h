#ifndef FUSED_EMBEDDING_CORE_TABLE_CACHE_CLOCK_H_
#define FUSED_EMBEDDING_CORE_TABLE_CACHE_CLOCK_H_

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
// has a whole round to be used again, and begins without a chance. But with kLfu one that comes
// back from the store and was used twice as often as rows that leave, by the logarithms of their
// frequencies, has as many chances as that has bits. (TinyLFU compares the two by a sketch: G.
// Einziger, R. Friedman and B. Manes, ACM TOS 13(4), 2017; a row knows its frequency.)
// docs/decisions/027 has what that is worth. One that is to be used soon is spared once more, and
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
    state = use == RowUse::kSoon ? state | kExpected : state & ~kExpected;
  }
  FE_INLINE void Change(int64_t row) {
    if (is_on()) states_[Index(row)] |= kDirty;
  }
  // Whether the store lacks what the row has.
  bool IsDirty(int64_t row) const { return (states_[Index(row)] & kDirty) != 0; }
  void SetClean(int64_t row) { states_[Index(row)] &= static_cast<uint8_t>(~kDirty); }

  // The row below `num_rows` that leaves next; one of them is alive.
  uint32_t Next(int64_t num_rows);
  // Of a row that leaves.
  void CountLeaving(uint32_t frequency);

 private:
  static constexpr uint8_t kAlive = 0x80, kDirty = 0x40, kExpected = 0x20, kChances = 0x0f;
  static constexpr uint8_t kOneChance = 1;
  static size_t Index(int64_t row) { return static_cast<size_t>(row); }

  bool is_off_ = true;
  uint8_t max_chances_ = 0;
  int64_t hand_ = 0;
  double bits_of_leaving_ = 0.0;  // of the frequencies of rows that left, the last ones' average
  std::vector<uint8_t> states_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_CACHE_CLOCK_H_
