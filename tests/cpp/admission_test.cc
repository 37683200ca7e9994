#include "tf_ops/core/table/admission.h"

#include <unordered_map>

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

CountingBloomFilter MakeFilter(int64_t num_counters, int64_t num_hashes, int64_t min_frequency) {
  CountingBloomFilter filter;
  EXPECT_TRUE(IsOk(CountingBloomFilter::Create(num_counters, num_hashes, min_frequency, &filter)));
  return filter;
}

// The hash of a key, as good and as bad as that of a table's shard: the high bits are the same.
uint64_t HashInShard(uint64_t key) { return (Mix64(key) >> 8) | (uint64_t{0xab} << 56); }

// Counters for `num_keys` keys.
int64_t NumCounters(int64_t num_keys, int64_t num_hashes) {
  return static_cast<int64_t>(
      std::ceil(static_cast<double>(num_keys * num_hashes) / std::log(2.0)));
}

class CounterWidths : public ::testing::TestWithParam<int64_t> {};  // by min_frequency
INSTANTIATE_TEST_SUITE_P(Bloom, CounterWidths, ::testing::Values(5, 300));

TEST_P(CounterWidths, ErrorsAreAsRareAsDesigned) {
  constexpr uint64_t kKeys = 20000, kOthers = 400000;
  for (const int64_t num_hashes : {1, 2, 3, 5, 7, 10, 16}) {
    CountingBloomFilter filter = MakeFilter(NumCounters(kKeys, num_hashes), num_hashes, GetParam());
    for (uint64_t key = 0; key < kKeys; ++key) filter.Add(HashInShard(key), 1);
    int64_t num_seen = 0;
    for (uint64_t key = kKeys; key < kKeys + kOthers; ++key) {
      num_seen += filter.Estimate(HashInShard(key)) > 0 ? 1 : 0;
    }
    const double want = std::pow(2.0, static_cast<double>(-num_hashes)) * kOthers;
    // 5 % for the design value, which is of an average filter, and four deviations.
    EXPECT_LT(static_cast<double>(num_seen), 1.05 * want + 4 * std::sqrt(want))
        << num_hashes << " hashes";
    EXPECT_GT(static_cast<double>(num_seen), 0.9 * want - 4 * std::sqrt(want) - 1)
        << num_hashes << " hashes";
  }
}

TEST_P(CounterWidths, NeverCountsTooLowAndRarelyTooHigh) {
  Random random(5);
  constexpr int64_t kKeys = 3000;
  CountingBloomFilter filter = MakeFilter(NumCounters(kKeys, 7), 7, GetParam());
  std::unordered_map<uint64_t, int64_t> counts;
  for (int i = 0; i < 20000; ++i) {
    const auto key = static_cast<uint64_t>(RandomInt(&random, 0, kKeys - 1));
    const int64_t count = RandomInt(&random, 0, 3);
    const int64_t before = filter.Estimate(HashInShard(key));
    const int64_t after = filter.Add(HashInShard(key), count);
    EXPECT_EQ(after, before + count);
    EXPECT_EQ(after, filter.Estimate(HashInShard(key)));
    counts[key] += count;
    EXPECT_GE(after, counts[key]);
  }
  int64_t num_wrong = 0;
  for (const auto& [key, count] : counts) {
    num_wrong += filter.Estimate(HashInShard(key)) != count ? 1 : 0;
  }
  EXPECT_LT(num_wrong, kKeys / 50);
}

TEST_P(CounterWidths, Saturates) {
  const int64_t max = GetParam() <= 255 ? 255 : 65535;
  CountingBloomFilter filter = MakeFilter(1000, 4, GetParam());
  EXPECT_EQ(filter.Add(1, max - 1), max - 1);
  EXPECT_EQ(filter.Add(1, 1), max);
  EXPECT_EQ(filter.Add(1, 1), max);
  EXPECT_EQ(filter.Add(1, kInt64Max), max);
  EXPECT_EQ(filter.Add(2, kInt64Max), max);
  EXPECT_EQ(filter.Add(3, 0), 0);
  EXPECT_EQ(filter.Add(3, -7), 0);
  EXPECT_EQ(filter.Estimate(1), max);
}

TEST(CountingBloomFilter, OneCounterAndManyHashes) {
  for (const int64_t num_hashes : {1, 10, 11, 16}) {
    CountingBloomFilter filter = MakeFilter(1, num_hashes, 2);
    EXPECT_EQ(filter.memory_bytes(), 64);
    EXPECT_EQ(filter.Add(kInt64Max, 3), 3);
    EXPECT_GE(filter.Add(0, 1), 1);
  }
}

TEST(CountingBloomFilter, LinesAreCacheLines) {
  const CountingBloomFilter filter = MakeFilter(100000, 7, 2);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(filter.bytes().data) % 64, 0u);
  EXPECT_NEAR(static_cast<double>(filter.memory_bytes()), 1.33 * 100000, 64);
}

// Counters are kept in checkpoints: a key must find its own again, for ever.
TEST(CountingBloomFilter, CountersNeverMove) {
  for (const int64_t min_frequency : {2, 300}) {
    CountingBloomFilter filter = MakeFilter(2000, 12, min_frequency);
    for (uint64_t key = 0; key < 200; ++key) filter.Add(key * key, static_cast<int64_t>(key));
    uint64_t hash = 14695981039346656037ULL;  // FNV-1a
    for (const char c : filter.bytes()) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    }
    EXPECT_EQ(hash, min_frequency == 2 ? 10774188788080228311ULL : 7869895490975800747ULL);
  }
}

TEST(CountingBloomFilter, RestoreGivesTheSameFilter) {
  CountingBloomFilter filter = MakeFilter(5000, 7, 2);
  for (uint64_t key = 0; key < 500; ++key) filter.Add(HashInShard(key), 1 + (key % 3));
  CountingBloomFilter other = MakeFilter(5000, 7, 2);
  ASSERT_TRUE(IsOk(other.Restore(filter.bytes())));
  for (uint64_t key = 0; key < 5000; ++key) {
    EXPECT_EQ(other.Estimate(HashInShard(key)), filter.Estimate(HashInShard(key)));
  }
  other.Clear();
  for (uint64_t key = 0; key < 500; ++key) EXPECT_EQ(other.Estimate(HashInShard(key)), 0);

  CountingBloomFilter larger = MakeFilter(6000, 7, 2);
  larger.Add(1, 5);
  EXPECT_TRUE(IsInvalid(larger.Restore(filter.bytes()), {"8000", "6656", "same size"}));
  EXPECT_EQ(larger.Estimate(1), 5);
}

TEST(CountingBloomFilter, RefusesWhatItCannotBe) {
  CountingBloomFilter filter = MakeFilter(100, 3, 2);
  filter.Add(1, 2);
  const auto create = [&](int64_t counters, int64_t hashes, int64_t min_frequency) {
    return CountingBloomFilter::Create(counters, hashes, min_frequency, &filter);
  };
  EXPECT_TRUE(IsInvalid(create(0, 3, 2), {"at least one counter", "got 0"}));
  EXPECT_TRUE(IsInvalid(create(10, 0, 2), {"1 to 16 hashes", "got 0"}));
  EXPECT_TRUE(IsInvalid(create(10, 17, 2), {"got 17"}));
  EXPECT_TRUE(IsInvalid(create(10, 3, 65536), {"65535", "65536", "counter filter"}));
  EXPECT_TRUE(Fails(create(kInt64Max, 16, 2), StatusCode::kResourceExhausted, {"cannot allocate"}));
  EXPECT_TRUE(
      Fails(create(int64_t{1} << 56, 16, 2), StatusCode::kResourceExhausted, {"cannot allocate"}));
  EXPECT_EQ(filter.Estimate(1), 2);
}

TEST(CheckAdmission, RefusesNumbersOutOfRange) {
  AdmissionConfig config;
  EXPECT_TRUE(IsOk(CheckAdmission(config)));
  config.min_frequency = -1;
  EXPECT_TRUE(IsInvalid(CheckAdmission(config), {"min_frequency", "-1"}));
  config.kind = AdmissionKind::kCounter;
  config.min_frequency = int64_t{1} << 32;
  EXPECT_TRUE(IsInvalid(CheckAdmission(config), {"4294967295", "4294967296"}));
  config.min_frequency = 3;
  EXPECT_TRUE(IsOk(CheckAdmission(config)));
  config.kind = AdmissionKind::kBloom;
  EXPECT_TRUE(IsInvalid(CheckAdmission(config), {"counter"}));
  config.bloom_counters = 10;
  config.bloom_hashes = 16;
  EXPECT_TRUE(IsOk(CheckAdmission(config)));
}

}  // namespace
}  // namespace fused_embedding
