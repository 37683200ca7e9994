#include "tf_ops/core/table/hash_index.h"

#include <map>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/base/hash.h"

namespace fused_embedding {
namespace {

constexpr double kMaxLoad = 0.8;

HashIndex MakeIndex(int64_t num_entries) {
  HashIndex index;
  EXPECT_TRUE(IsOk(HashIndex::Create(num_entries, kMaxLoad, &index)));
  return index;
}

// The row that is sought is told apart from others of the same hash by its number.
uint32_t FindRow(const HashIndex& index, uint64_t hash, uint32_t row) {
  return index.Find(hash, [&](uint32_t candidate) { return candidate == row; });
}

TEST(HashIndexTest, ABucketIsACacheLineOfTwelve) {
  const HashIndex index = MakeIndex(9);
  EXPECT_EQ(index.capacity(), 9);
  EXPECT_EQ(index.memory_bytes(), 64);
  EXPECT_EQ(MakeIndex(10).memory_bytes(), 128);
}

TEST(HashIndexTest, EveryHashIsLegal) {
  HashIndex index = MakeIndex(8);
  const uint64_t hashes[] = {0, ~uint64_t{0}, uint64_t{1} << 48, uint64_t{255} << 48};
  for (uint32_t i = 0; i < 4; ++i) index.Insert(hashes[i], i);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(FindRow(index, hashes[i], i), i);
  EXPECT_EQ(FindRow(index, uint64_t{2} << 48, 9), kNoRow);
}

// Against a map, with hashes of `hash_of(random)`.
template <typename HashOf>
void CompareWithMap(int64_t num_entries, int seed, const HashOf& hash_of) {
  Random random(seed);
  HashIndex index = MakeIndex(num_entries);
  std::map<uint32_t, uint64_t> model;  // hash by row
  for (int step = 0; step < 20 * num_entries; ++step) {
    const uint32_t row = static_cast<uint32_t>(RandomInt(&random, 0, 2 * num_entries));
    const auto entry = model.find(row);
    if (entry != model.end()) {
      ASSERT_EQ(FindRow(index, entry->second, row), row) << "seed " << seed << " step " << step;
      if (RandomBool(&random)) continue;
      index.Erase(entry->second, row);
      ASSERT_EQ(FindRow(index, entry->second, row), kNoRow);
      model.erase(entry);
    } else if (index.size() < index.capacity()) {
      const uint64_t hash = hash_of(&random);
      ASSERT_EQ(FindRow(index, hash, row), kNoRow);
      index.Insert(hash, row);
      model[row] = hash;
    }
    ASSERT_EQ(index.size(), model.size());
  }
  for (const auto& [row, hash] : model) ASSERT_EQ(FindRow(index, hash, row), row);
}

TEST(HashIndexTest, FindsWhatAMapFinds) {
  for (int seed = 0; seed < NumCases(20); ++seed) {
    CompareWithMap(1 + 97 * seed, seed, [](Random* random) { return (*random)(); });
  }
}

// Overflows saturate here, and all buckets fill up from one on.
TEST(HashIndexTest, EntriesMayAllCollide) {
  CompareWithMap(800, 1, [](Random* /*random*/) { return Mix64(7); });
  CompareWithMap(800, 2, [](Random* random) { return Mix64((*random)() % 3); });
}

// The fast path of a search by groups agrees with the full one.
TEST(HashIndexTest, ACandidateThatIsCertainIsTheOnlyOne) {
  Random random(5);
  HashIndex index = MakeIndex(2000);
  std::vector<uint64_t> hashes;
  // Half of the hashes share their bucket and tag with others.
  for (uint32_t row = 0; index.size() < index.capacity(); ++row) {
    hashes.push_back(RandomBool(&random) ? random() : Mix64(random() % 100));
    index.Insert(hashes.back(), row);
  }
  int64_t num_certain = 0, num_second = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t hash = RandomBool(&random) ? random() : hashes[random() % hashes.size()];
    bool is_certain = false;
    uint32_t second = 0;
    const uint32_t candidate = index.Candidate(hash, &second, &is_certain);
    std::set<uint32_t> matches;
    index.Find(hash, [&](uint32_t row) {
      matches.insert(row);
      return false;
    });
    num_certain += is_certain;
    num_second += second != kNoRow;
    if (second != kNoRow) {
      EXPECT_FALSE(is_certain);
      EXPECT_NE(second, candidate);
      EXPECT_EQ(matches.count(second), 1u);
    }
    if (is_certain && candidate == kNoRow) {
      EXPECT_TRUE(matches.empty());
    } else if (is_certain) {
      EXPECT_EQ(matches, std::set<uint32_t>{candidate});
    } else if (candidate != kNoRow) {
      EXPECT_EQ(matches.count(candidate), 1u);
    }
  }
  EXPECT_GT(num_certain, 5000);
  EXPECT_GT(num_second, 1000);
}

TEST(HashIndexTest, ErasingLeavesNothingBehind) {
  HashIndex index = MakeIndex(100);
  // More than one bucket of the same home, fewer than saturate its overflow.
  for (uint32_t row = 0; row < 40; ++row) index.Insert(0, row);
  for (uint32_t row = 0; row < 40; ++row) index.Erase(0, row);
  int64_t num_compared = 0;
  bool is_certain = false;
  uint32_t second = 0;
  EXPECT_EQ(index.Candidate(0, &second, &is_certain), kNoRow);
  EXPECT_EQ(second, kNoRow);
  EXPECT_TRUE(is_certain) << "the home bucket still sends searches on";
  index.Find(0, [&](uint32_t /*row*/) { return ++num_compared > 0; });
  EXPECT_EQ(num_compared, 0);
}

TEST(HashIndexTest, ClearedItIsEmpty) {
  HashIndex index = MakeIndex(100);
  for (uint32_t row = 0; row < 40; ++row) index.Insert(Mix64(row), row);
  index.Clear();
  EXPECT_EQ(index.size(), 0);
  for (uint32_t row = 0; row < 40; ++row) EXPECT_EQ(FindRow(index, Mix64(row), row), kNoRow);
}

TEST(HashIndexTest, TooManyEntriesAreResourceExhausted) {
  HashIndex index;
  EXPECT_TRUE(Fails(HashIndex::Create(int64_t{1} << 50, kMaxLoad, &index),
                    StatusCode::kResourceExhausted, {"cannot allocate"}));
}

}  // namespace
}  // namespace fused_embedding
