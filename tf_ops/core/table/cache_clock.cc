#include "tf_ops/core/table/cache_clock.h"

#include <algorithm>

namespace fused_embedding {

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
