#include "tf_ops/core/input/example_keys.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

using Ints = std::vector<int64_t>;

// Lists of values, and the bytes that they refer to.
class Lists {
 public:
  // A short one text is a word, as the plain reader has it.
  void AddTexts(const std::vector<std::string>& texts) {
    if (texts.size() == 1 && texts[0].size() <= 8) {
      uint64_t word = 0;
      std::memcpy(&word, texts[0].data(), texts[0].size());
      lists_.push_back(ExampleList::OfWord(word, static_cast<uint32_t>(texts[0].size())));
      return;
    }
    std::string& bytes = *bytes_.emplace_back(std::make_unique<std::string>());
    for (const std::string& text : texts) {
      if (texts.size() > 1) bytes += static_cast<char>(kItemTag) + Varint(text.size());
      bytes += text;
    }
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    lists_.push_back(texts.size() == 1
                         ? ExampleList::OfText(data, static_cast<int64_t>(bytes.size()))
                         : ExampleList(data, static_cast<int64_t>(texts.size())));
  }

  void AddIntegers(const std::vector<int64_t>& values, bool are_tagged) {
    std::string& bytes = *bytes_.emplace_back(std::make_unique<std::string>());
    for (const int64_t value : values) {
      if (are_tagged) bytes += static_cast<char>(kVarintTag);
      bytes += Varint(static_cast<uint64_t>(value));
    }
    lists_.push_back(ExampleList(reinterpret_cast<const uint8_t*>(bytes.data()),
                                 static_cast<int64_t>(values.size()), are_tagged));
  }

  Span<const ExampleList> view() const { return AsSpan(lists_); }

 private:
  static std::string Varint(uint64_t number) {
    std::string bytes;
    for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
    return bytes + static_cast<char>(number);
  }

  std::vector<ExampleList> lists_;
  std::vector<std::unique_ptr<std::string>> bytes_;
};

struct Keys {
  Ints keys, rows;
  bool operator==(const Keys& other) const { return keys == other.keys && rows == other.rows; }
};

Keys ExampleKeysOf(const Lists& lists, ListKind kind, const KeyRule& rule, size_t num_values) {
  Array<int64_t> keys(static_cast<int64_t>(num_values), -77);
  Array<int64_t> rows(static_cast<int64_t>(num_values), -77);
  WriteKeysOfLists(lists.view(), kind, rule, 3, keys.span().data, rows.span().data);
  return {keys.values(), rows.values()};
}

TEST(ExampleKeys, TheExampleOfTheirHeader) {
  Lists lists;
  for (const std::vector<std::string>& texts :
       {std::vector<std::string>{"x", "y"}, {}, std::vector<std::string>{"x"}}) {
    lists.AddTexts(texts);
  }
  const KeyRule rule = {KeyKind::kHash, 1000, -1, {}};
  const auto hash = [](const char* text) {
    return static_cast<int64_t>(Fingerprint64(text) % 1000);
  };
  EXPECT_TRUE(ExampleKeysOf(lists, ListKind::kText, rule, 3) ==
              (Keys{{hash("x"), hash("y"), hash("x")}, {3, 3, 5}}));
}

TEST(ExampleKeys, OfTextsAreTheirFingerprints) {
  Random random(1);
  for (int round = 0; round < NumCases(200); ++round) {
    const KeyRule rule = {KeyKind::kHash, RandomBool(&random) ? 97 : kInt64Max, -1, {}};
    // Lists of one size are hashed as vectors; more values than are hashed together.
    const int64_t size = RandomBool(&random) ? RandomInt(&random, 8, 16) : -1;
    Lists lists;
    Keys want;
    const int64_t num_lists = RandomInt(&random, 0, 2 * kHashBlock);
    for (int64_t i = 0; i < num_lists; ++i) {
      std::vector<std::string> texts(static_cast<size_t>(RandomInt(&random, 0, 3)));
      for (std::string& text : texts) {
        text.resize(static_cast<size_t>(size < 0 ? RandomInt(&random, 0, 40) : size));
        for (char& c : text) c = static_cast<char>(random());
        const uint64_t hash = Fingerprint64(std::string_view(text));
        want.keys.push_back(static_cast<int64_t>(hash % static_cast<uint64_t>(rule.num_buckets)));
        want.rows.push_back(3 + i);
      }
      lists.AddTexts(texts);
    }
    ASSERT_TRUE(ExampleKeysOf(lists, ListKind::kText, rule, want.keys.size()) == want) << round;
  }
}

TEST(ExampleKeys, OfIntegersAreThemselvesOrTheFingerprintsOfTheirTexts) {
  Random random(2);
  for (int round = 0; round < NumCases(200); ++round) {
    const bool is_hash = RandomBool(&random);
    const KeyRule rule = {
        is_hash ? KeyKind::kHash : KeyKind::kIdentity, 50, RandomBool(&random) ? -1 : 7, {}};
    Lists lists;
    Keys want;
    const int64_t num_lists = RandomInt(&random, 0, 2 * kHashBlock);
    for (int64_t i = 0; i < num_lists; ++i) {
      Ints values(static_cast<size_t>(RandomInt(&random, 0, 3)));
      for (int64_t& value : values) {
        value = RandomBool(&random) ? RandomInt(&random, -3, 60) : static_cast<int64_t>(random());
        const uint64_t hash = Fingerprint64(std::string_view(std::to_string(value)));
        const bool is_inside = value >= 0 && value < 50;
        const int64_t identity = is_inside || rule.default_key < 0 ? value : rule.default_key;
        want.keys.push_back(is_hash ? static_cast<int64_t>(hash % 50) : identity);
        want.rows.push_back(3 + i);
      }
      lists.AddIntegers(values, RandomBool(&random));
    }
    ASSERT_TRUE(ExampleKeysOf(lists, ListKind::kInteger, rule, want.keys.size()) == want) << round;
  }
}

}  // namespace
}  // namespace fused_embedding
