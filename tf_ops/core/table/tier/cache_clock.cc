#include "tf_ops/core/table/tier/cache_clock.h"

#include <algorithm>

namespace fused_embedding {
namespace {

// The number of bits of `frequency`: floor(log2) + 1, or 0 for 0.
int NumBits(uint32_t frequency) { return frequency == 0 ? 0 : 32 - __builtin_clz(frequency); }

}  // namespace

void CacheClock::TurnOn(CacheStrategy strategy) {
  is_off_ = false;
  max_chances_ = strategy == CacheStrategy::kLru ? kOneChance : kChances;
}

void CacheClock::Reserve(int64_t num_rows) {
  if (!is_on() || Index(num_rows) <= states_.size()) return;
  states_.resize(std::max(Index(num_rows), states_.size() + states_.size() / 4));
}

void CacheClock::Clear() {
  hand_ = 0;
  states_ = {};
}

void CacheClock::AddClean(int64_t row, uint32_t frequency, RowUse use) {
  const int num_chances =
      IsFrequent(frequency) ? std::min<int>(NumBits(frequency), max_chances_) : 0;
  const uint8_t expected = use == RowUse::kSoon ? kExpected : 0;
  states_[Index(row)] = static_cast<uint8_t>(kAlive | expected | num_chances);
}

uint32_t CacheClock::WithoutChance(int64_t num_rows) {
  for (;; ++hand_) {
    if (hand_ >= num_rows) hand_ = 0;
    uint8_t& state = states_[Index(hand_)];
    if ((state & kExpected) != 0) {
      state &= static_cast<uint8_t>(~kExpected);
    } else if ((state & kChances) != 0) {
      --state;
    } else if ((state & kAlive) != 0) {
      return static_cast<uint32_t>(hand_++);
    }
  }
}

bool CacheClock::Spare(uint32_t row, uint32_t frequency) {
  constexpr uint8_t kMoreChances = 3;  // further cycles of the hand, after the present one
  constexpr double kWeight = 1.0 / 1024;
  uint8_t& state = states_[row];
  if ((state & kSpared) == 0 && IsFrequent(frequency)) {
    state |= kSpared | kMoreChances;
    return true;
  }
  frequency_of_leaving_ += kWeight * (frequency - frequency_of_leaving_);
  return false;
}

}  // namespace fused_embedding
