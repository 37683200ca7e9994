#include "tf_ops/core/table/cache_clock.h"

#include <algorithm>

namespace fused_embedding {
namespace {

// One more than the logarithm; 0 of 0.
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
  const int num_bits = NumBits(frequency);
  const bool is_frequent = max_chances_ > kOneChance && num_bits > bits_of_leaving_ + 1.0;
  const int num_chances = is_frequent ? std::min<int>(num_bits, max_chances_) : 0;
  const uint8_t expected = use == RowUse::kSoon ? kExpected : 0;
  states_[Index(row)] = static_cast<uint8_t>(kAlive | expected | num_chances);
}

void CacheClock::CountLeaving(uint32_t frequency) {
  constexpr double kWeight = 1.0 / 1024;
  bits_of_leaving_ += kWeight * (NumBits(frequency) - bits_of_leaving_);
}

uint32_t CacheClock::Next(int64_t num_rows) {
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

}  // namespace fused_embedding
