#include "tf_ops/core/base/hash.h"

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

TEST(Mix64, IsFmix64OfMurmurHash3) {
  // Values of the public-domain C source.
  EXPECT_EQ(Mix64(0), 0u);
  EXPECT_EQ(Mix64(1), 0xb456bcfc34c2cb2cu);
  EXPECT_EQ(Mix64(0xffffffffffffffffu), 0x64b5720b4b825f21u);
}

TEST(Mix64, EveryInputBitChangesAboutHalfOfTheOutputBits) {
  Random random(1);
  for (int bit = 0; bit < 64; ++bit) {
    int64_t num_changed = 0;
    constexpr int kRounds = 1000;
    for (int i = 0; i < kRounds; ++i) {
      const uint64_t x = random();
      num_changed += __builtin_popcountll(Mix64(x) ^ Mix64(x ^ (uint64_t{1} << bit)));
    }
    EXPECT_NEAR(static_cast<double>(num_changed) / kRounds, 32, 1) << "bit " << bit;
  }
}

TEST(Mix64, ConsecutiveIdsHaveDistinctHashes) {
  std::set<uint64_t> hashes;
  for (uint64_t id = 0; id < 100000; ++id) hashes.insert(Mix64(id));
  EXPECT_EQ(hashes.size(), 100000u);
}

}  // namespace
}  // namespace fused_embedding
