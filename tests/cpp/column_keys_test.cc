#include "tf_ops/core/input/column_keys.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/input/cross.h"

namespace fused_embedding {
namespace {

using Ints = std::vector<int64_t>;
using Strings = std::vector<std::string>;

struct Texts {
  const std::string* data = nullptr;
  int64_t size = 0;
  std::string_view operator[](int64_t i) const { return data[i]; }
};

// Values of stock TensorFlow: tf.strings.to_hash_bucket_fast(text, 2**63 - 1).
TEST(Fingerprint, IsStocksForEverySizeClass) {
  const std::string text =
      "A sparse embedding is a row of a table. Ids of a feature choose rows, and rows are "
      "combined.";
  const std::vector<std::pair<uint64_t, uint64_t>> wanted = {
      {0, 1936946117179621456u},  {1, 7691922019767284757u},  {2, 2084105509997443817u},
      {3, 7682820936975875063u},  {4, 8593157004427936442u},  {5, 2842314261530188732u},
      {7, 3966782453777016073u},  {8, 4415876576630292645u},  {9, 2028035308220845066u},
      {15, 5338788379970671381u}, {16, 4587719058179718984u}, {17, 5288484433767112052u},
      {24, 8430719608914175297u}, {32, 8659994845314890438u}, {33, 242212906995087390u},
      {48, 7115962950584979326u}, {64, 4009303199801575328u}, {65, 5953580884327406235u},
      {80, 7794865643975601932u}, {92, 6332590434944263204u}};
  for (const auto& [size, hash] : wanted) {
    const uint64_t got = Fingerprint64(std::string_view(text).substr(0, size));
    EXPECT_EQ(got % static_cast<uint64_t>(kInt64Max), hash) << size;
  }
}

TEST(Fingerprint, OfANumberIsThatOfItsText) {
  Ints numbers = {0, -1, kInt64Min, kInt64Max};
  for (int64_t power = 1; power <= 1'000'000'000'000'000'000; power *= 10) {
    for (const int64_t number : {power - 1, power, power + 1}) {
      numbers.insert(numbers.end(), {number, -number});
    }
    if (power == 1'000'000'000'000'000'000) break;
  }
  Random random(1);
  for (int i = 0; i < 10'000; ++i) {
    numbers.push_back(RandomInt(&random, 0, kInt64Max) >> RandomInt(&random, 0, 62));
  }
  for (const int64_t number : numbers) {
    const uint64_t want = Fingerprint64(std::to_string(number));
    EXPECT_EQ(Fingerprint64(number), want) << number;
    if (static_cast<uint64_t>(number) > fingerprint::kMaxSmall) continue;
    const auto small = static_cast<uint64_t>(number);
    EXPECT_EQ(fingerprint::OfSmallWithoutBranches<8>(small), want) << number;
    if (number > 9'999'999) continue;
    EXPECT_EQ(fingerprint::OfSmallWithoutBranches<7>(small), want) << number;
  }
}

TEST(Modulus, IsThatOfADivision) {
  Random random(3);
  for (int i = 0; i < 100'000; ++i) {
    const int64_t divisor = std::max(RandomInt(&random, 1, kInt64Max) >> (i % 63), int64_t{1});
    const auto d = static_cast<uint64_t>(divisor);
    const auto any = static_cast<uint64_t>(RandomInt(&random, kInt64Min, kInt64Max)) >> (i % 61);
    const uint64_t product = any / d * d;
    const Modulus modulus(divisor);
    for (const uint64_t value : {any, product, product - 1, product + d - 1, ~uint64_t{0}}) {
      EXPECT_EQ(modulus.Of(value), value % d) << value << " % " << d;
      EXPECT_EQ(modulus.OfInVectors(value), value % d) << value << " % " << d;
    }
  }
}

TEST(ColumnKeys, OfTextsOfEverySize) {
  Random random(4);
  for (int round = 0; round < 50; ++round) {
    Strings strings;
    for (int i = 0; i < 600; ++i) {  // blocks of 8 to 16 bytes alone, and others
      const bool is_of_any_size = i > 300 && RandomBool(&random, 0.01 * round);
      const int64_t size = RandomInt(&random, is_of_any_size ? 0 : 8, is_of_any_size ? 40 : 16);
      strings.emplace_back();
      for (int64_t k = 0; k < size; ++k) {
        strings.back() += static_cast<char>(RandomInt(&random, -128, 127));
      }
    }
    const KeyRule rule{KeyKind::kHash, RandomInt(&random, 1, kInt64Max) >> round, -1};
    Ints keys(600), want;
    const std::vector<KeyColumn<Texts>> columns = {
        {Texts{strings.data(), 600}, rule, /*drops_none=*/true, 1, 0, keys.data()}};
    std::atomic<bool> has_none[1] = {};
    WriteColumnKeys<Texts>(SerialExec(), AsSpan(columns), {has_none, 1});
    for (const std::string& text : strings) {
      want.push_back(
          static_cast<int64_t>(Fingerprint64(text) % static_cast<uint64_t>(rule.num_buckets)));
    }
    EXPECT_EQ(keys, want);
    EXPECT_EQ(has_none[0].load(), std::find(strings.begin(), strings.end(), "") != strings.end());
  }
}

TEST(ColumnKeys, AreThoseOfTheRule) {
  Random random(2);
  for (int round = 0; round < 50; ++round) {
    const int64_t size = RandomInt(&random, 0, 2'000);
    const int64_t largest = round % 2 == 0 ? 300'000 : 200'000'000 >> (round % 8);
    Ints numbers;
    Strings strings;
    for (int64_t i = 0; i < size; ++i) {
      const bool is_large = RandomBool(&random, round % 3 == 0 ? 0.01 : 0);
      const int64_t least = round % 5 == 0 ? -2 : 0;
      numbers.push_back(RandomInt(&random, least, is_large ? kInt64Max : largest));
      strings.push_back(std::to_string(numbers.back()));
    }
    const KeyRule hash{KeyKind::kHash, RandomInt(&random, 1, 1'000'000), -1};
    const KeyRule identity{KeyKind::kIdentity, 1'000, RandomInt(&random, -1, 999)};
    std::vector<KeyColumn<Texts>> columns;
    const KeyRule index{KeyKind::kIndex, 1'000, -1};
    std::vector<Ints> keys(4, Ints(static_cast<size_t>(size)));
    const Texts texts{strings.data(), size};
    const Span<const int64_t> span = AsSpan(std::as_const(numbers));
    columns.push_back({span, hash, /*drops_none=*/true, 1, 0, keys[0].data()});
    columns.push_back({texts, hash, false, 1, 0, keys[1].data()});
    columns.push_back({span, identity, false, 1, 0, keys[2].data()});
    columns.push_back({span, index, false, 1, 0, keys[3].data()});
    std::atomic<bool> has_none[4] = {};
    WriteColumnKeys<Texts>(ThreadedExec(1 + round % 4), AsSpan(std::as_const(columns)),
                           {has_none, 4});
    EXPECT_EQ(keys[0], keys[1]);
    bool has_minus_one = false;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const int64_t number = numbers[i];
      has_minus_one |= number == -1;
      EXPECT_EQ(keys[1][i], Fingerprint64(strings[i]) % static_cast<uint64_t>(hash.num_buckets));
      const bool is_kept = identity.default_key < 0 || (number >= 0 && number < 1'000);
      EXPECT_EQ(keys[2][i], is_kept ? number : identity.default_key);
      EXPECT_EQ(keys[3][i], number < 0 ? 1'000 + number : number);
    }
    EXPECT_EQ(has_none[0].load(), has_minus_one);
    EXPECT_FALSE(has_none[1].load());
    EXPECT_FALSE(has_none[2].load());
  }
}

TEST(ColumnKeys, ValuesThatMeanNoneAreDropped) {
  const Strings strings = {"", "a", "b", "", "c", ""};
  Ints keys = {0, 1, 2, 3, 4, 5}, rows(6);
  WriteRowsOfMatrix(2, AsSpan(rows));
  EXPECT_EQ(rows, (Ints{0, 0, 1, 1, 2, 2}));
  const KeyColumn<Texts> column{Texts{strings.data(), 6}, {}, true, 1, 0, keys.data()};
  ASSERT_EQ(DropNone(column, rows.data()), 3);
  EXPECT_EQ(keys, (Ints{1, 2, 4, 3, 4, 5}));
  EXPECT_EQ((Ints{rows[0], rows[1], rows[2]}), (Ints{0, 1, 2}));
}

Ints ColumnKeysOf(
    std::variant<Span<const int32_t>, Span<const int64_t>, Span<const float>, Texts> values,
    const KeyRule& rule, int64_t width, int64_t vocabulary_size, Ints found) {
  const std::vector<KeyColumn<Texts>> columns = {
      {values, rule, false, width, vocabulary_size, found.data()}};
  std::atomic<bool> has_none[1] = {};
  WriteColumnKeys<Texts>(SerialExec(), AsSpan(columns), {has_none, 1});
  return found;
}

TEST(ColumnKeys, OfAVocabulary) {
  const Ints numbers = {70, 71, 72};
  const Span<const int64_t> values = AsSpan(numbers);
  const auto bucket = [](const char* text) {
    return static_cast<int64_t>(Fingerprint64(text) % 5);
  };
  EXPECT_EQ(ColumnKeysOf(values, {KeyKind::kVocabulary, 5, -1}, 1, 10, {3, kNotFound, 0}),
            (Ints{3, 10 + bucket("71"), 0}));
  EXPECT_EQ(ColumnKeysOf(values, {KeyKind::kVocabulary, 0, 7}, 1, 10, {kNotFound, 2, kNotFound}),
            (Ints{7, 2, 7}));
  const Strings strings = {"oak"};
  EXPECT_EQ(
      ColumnKeysOf(Texts{strings.data(), 1}, {KeyKind::kVocabulary, 5, -1}, 1, 2, {kNotFound}),
      Ints{2 + bucket("oak")});
}

TEST(ColumnKeys, OfBuckets) {
  const std::vector<float> boundaries = {0, 2};
  const std::vector<float> values = {-1, 0, 1.5f, 2, 3, std::nanf("")};
  const KeyRule rule{KeyKind::kBucketized, 3, -1, AsSpan(boundaries)};
  EXPECT_EQ(ColumnKeysOf(AsSpan(values), rule, 1, 0, Ints(6)), (Ints{0, 1, 1, 2, 2, 2}));
  EXPECT_EQ(ColumnKeysOf(AsSpan(values), rule, 2, 0, Ints(6)), (Ints{0, 4, 1, 5, 2, 5}));
}

TEST(ColumnKeys, OfPartsOfACross) {
  const Strings strings = {"", "oak"};
  const Ints numbers = {-1, 5};
  const KeyRule rule{KeyKind::kCrossPart, 1, -1};
  EXPECT_EQ(ColumnKeysOf(AsSpan(numbers), rule, 1, 0, Ints(2)), numbers);
  EXPECT_EQ(
      ColumnKeysOf(Texts{strings.data(), 2}, rule, 1, 0, Ints(2)),
      (Ints{static_cast<int64_t>(Fingerprint64("")), static_cast<int64_t>(Fingerprint64("oak"))}));
}

// A part of a cross: the keys of each row.
struct KeyRows {
  explicit KeyRows(const std::vector<Ints>& keys_of_row) {
    for (size_t r = 0; r < keys_of_row.size(); ++r) {
      for (const int64_t key : keys_of_row[r]) {
        keys.push_back(key);
        indices.insert(indices.end(), {static_cast<int64_t>(r), 0});
      }
    }
  }
  CrossPart part() const { return {AsSpan(keys), indices.data(), 2}; }

  Ints keys, indices;
};

// Values of stock TensorFlow: tf.sparse.cross_hashed of the same rows, 1000 buckets, hash_key 7.
TEST(Cross, IsStocks) {
  const KeyRows first({{1, 2}, {}, {3}, {4}}), second({{5, 6}, {7}, {8}, {}});
  const Cross cross({1000, 7}, {first.part(), second.part()});
  int64_t size = 0, width = 0;
  ASSERT_TRUE(IsOk(cross.Count(4, &size, &width)));
  EXPECT_EQ(size, 5);
  EXPECT_EQ(width, 4);
  Ints keys(5), rows(5);
  cross.Write(keys.data(), rows.data());
  EXPECT_EQ(rows, (Ints{0, 0, 0, 0, 2}));
  EXPECT_EQ(keys, (Ints{209, 682, 708, 823, 287}));
}

TEST(Cross, RowsAreChecked) {
  int64_t size = 0, width = 0;
  const KeyRows rows({{1}, {2}});
  EXPECT_FALSE(Cross({5, 1}, {rows.part(), rows.part()}).Count(1, &size, &width).ok());
  const Ints descending = {1, 0}, negative = {-1, 0};
  for (const Ints& bad : {descending, negative}) {
    const CrossPart part{AsSpan(rows.keys), bad.data(), 1};
    EXPECT_FALSE(Cross({5, 1}, {rows.part(), part}).Count(2, &size, &width).ok());
  }
  EXPECT_FALSE(CheckCrossRule({0, 1}).ok());
}

TEST(Cross, TooManyCombinationsAreRefused) {
  const Ints keys(1 << 16), rows(1 << 16);
  const CrossPart part{AsSpan(keys), rows.data(), 1};
  int64_t size = 0, width = 0;
  EXPECT_FALSE(Cross({5, 1}, {part, part, part, part}).Count(1, &size, &width).ok());
}

TEST(ColumnKeys, RowsOfRaggedFeatures) {
  Ints rows(3);
  const auto write = [&](const Ints& splits) {
    return WriteRowsOfRagged(AsSpan(splits), AsSpan(rows));
  };
  ASSERT_TRUE(IsOk(write({0, 0, 2, 2, 3})));
  EXPECT_EQ(rows, (Ints{1, 1, 3}));
  for (const Ints& bad : {Ints{}, Ints{0}, Ints{1, 3}, Ints{0, 2, 1, 3}, Ints{0, 4}, Ints{0, 2},
                          Ints{-1, 3}, Ints{0, 3, 4}}) {
    EXPECT_EQ(write(bad).code(), StatusCode::kInvalidArgument);
  }
}

TEST(ColumnKeys, RulesAreChecked) {
  constexpr FeatureType kText = FeatureType::kText, kInteger = FeatureType::kInteger;
  EXPECT_TRUE(IsOk(CheckKeyRule({KeyKind::kHash, 1, -1}, kText)));
  EXPECT_TRUE(IsOk(CheckKeyRule({KeyKind::kIdentity, 5, 4}, kInteger)));
  EXPECT_TRUE(IsOk(CheckKeyRule({KeyKind::kVocabulary, 0, 4}, kInteger)));
  EXPECT_FALSE(CheckKeyRule({KeyKind::kVocabulary, -1, 4}, kInteger).ok());
  EXPECT_FALSE(CheckKeyRule({KeyKind::kIdentity, 5, 4}, kText).ok());
  EXPECT_TRUE(IsOk(CheckKeyRule({KeyKind::kIndex, 5, -1}, kInteger)));
  EXPECT_FALSE(CheckKeyRule({KeyKind::kIndex, 5, -1}, kText).ok());
  EXPECT_FALSE(CheckKeyRule({KeyKind::kIdentity, 5, 5}, kInteger).ok());
  EXPECT_FALSE(CheckKeyRule({KeyKind::kHash, 0, -1}, kText).ok());
  EXPECT_FALSE(CheckKeyRule({KeyKind::kHash, 5, -1}, FeatureType::kFloat).ok());
  const std::vector<float> descending = {2, 1};
  const KeyRule buckets{KeyKind::kBucketized, 3, -1, AsSpan(descending)};
  EXPECT_FALSE(CheckKeyRule(buckets, FeatureType::kFloat).ok());
  EXPECT_FALSE(CheckKeyRule({KeyKind::kBucketized, 1, -1}, kInteger).ok());
  KeyKind kind;
  EXPECT_FALSE(ParseKeyKind("none", &kind).ok());
}

}  // namespace
}  // namespace fused_embedding
