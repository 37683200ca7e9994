#include "tf_ops/core/lookup/remote/key_message.h"

#include "tests/cpp/key_message_testing.h"
#include "tf_ops/core/lookup/remote/remote_rows.h"

namespace fused_embedding {
namespace {

Status Read(const Array<int64_t>& words, int64_t num_parts, bool has_counts, Message* message) {
  KeyMessage read;
  FE_RETURN_IF_ERROR(ReadMessage(words.view(), num_parts, has_counts, &read));
  *message = {read.step, {}, read.has_counts, {}};
  const int64_t* key = read.keys.span().begin();
  for (const int64_t num_keys : read.num_keys) {
    message->keys.emplace_back(key, key + num_keys);
    key += num_keys;
  }
  EXPECT_EQ(key, read.keys.span().end());
  message->counts.assign(read.counts.span().begin(), read.counts.span().end());
  return Status();
}

// Keys and counts that need few bytes, or many.
Message RandomMessage(Random* random) {
  const int64_t max_keys[] = {5, 0xFFFFFFFF, kInt64Max};
  const int64_t max_counts[] = {0xFF, 0xFFFF, 0x7FFFFFFF};
  const int64_t max_key = max_keys[RandomInt(random, 0, 2)];
  const int64_t max_count = max_counts[RandomInt(random, 0, 2)];
  Message message;
  message.step = RandomBool(random) ? RandomInt(random, -1, 5) : kInt64Max;
  message.has_counts = RandomBool(random);
  for (int64_t p = RandomInt(random, 0, 4); p > 0; --p) {
    message.keys.emplace_back();
    for (int64_t i = RandomInt(random, 0, 4); i > 0; --i) {
      message.keys.back().push_back(max_key == kInt64Max ? static_cast<int64_t>((*random)())
                                                         : RandomInt(random, 0, max_key));
      if (!message.has_counts) continue;
      message.counts.push_back(static_cast<int32_t>(RandomInt(random, 0, max_count)));
    }
  }
  return message;
}

int64_t NumParts(const Message& message) { return static_cast<int64_t>(message.keys.size()); }

TEST(KeyMessage, TheExampleOfItsHeader) {
  const Message message = {4, {{7, 3}, {9}}, true, {1, 2, 5}};
  const int64_t seven_and_three = 7 + (int64_t{3} << 32);
  EXPECT_EQ(Write(message).values(),
            (Ints{kFormatWithCounts, 4, 2, 2, 1, seven_and_three, 9, 1 + (2 << 8) + (5 << 16)}));
  EXPECT_EQ(Write({-1, {{7, 3}, {9}}, false, {}}).values(),
            (Ints{kFormat, -1, 2, 2, 1, seven_and_three, 9}));
}

TEST(KeyMessage, NumbersTakeAsFewBytesAsAllFitIn) {
  const auto words_of_numbers = [](int64_t key, int32_t count) {
    Message message = {0, {Ints(7, 1)}, true, std::vector<int32_t>(7, 1)};
    message.keys[0].push_back(key);
    message.counts.push_back(count);
    return Write(message).size() - 4;
  };
  EXPECT_EQ(words_of_numbers(0, 0), 4 + 1);
  EXPECT_EQ(words_of_numbers(0xFFFFFFFF, 0xFF), 4 + 1);
  EXPECT_EQ(words_of_numbers(int64_t{1} << 32, 0xFF), 8 + 1);
  EXPECT_EQ(words_of_numbers(-1, 0x100), 8 + 2);
  EXPECT_EQ(words_of_numbers(kInt64Min, 0xFFFF), 8 + 2);
  EXPECT_EQ(words_of_numbers(5, 0x10000), 4 + 4);
  EXPECT_EQ(words_of_numbers(5, 0x7FFFFFFF), 4 + 4);
}

TEST(KeyMessage, IsReadAsItWasWritten) {
  Random random(1);
  for (int round = 0; round < NumCases(500); ++round) {
    const Message message = RandomMessage(&random);
    Message read;
    ASSERT_TRUE(IsOk(Read(Write(message), NumParts(message), message.has_counts, &read)));
    ASSERT_TRUE(read == message) << "round " << round;
  }
}

TEST(KeyMessage, OfAnotherKindIsRefused) {
  Random random(2);
  for (int round = 0; round < NumCases(200); ++round) {
    const Message message = RandomMessage(&random);
    const Array<int64_t> words = Write(message);
    Message read;
    EXPECT_TRUE(IsInvalid(Read(words, NumParts(message), !message.has_counts, &read),
                          {"counts", "must run the same version"}));
    for (const int64_t other : {-1, 1}) {
      if (NumParts(message) + other < 0) continue;
      EXPECT_TRUE(IsInvalid(Read(words, NumParts(message) + other, message.has_counts, &read),
                            {"message", "tables", "must run the same version"}));
    }
  }
}

TEST(KeyMessage, IsRefusedIfAnyOfItIsMissing) {
  Random random(3);
  for (int round = 0; round < NumCases(200); ++round) {
    const Message message = RandomMessage(&random);
    Ints words = Write(message).values();
    words.push_back(0);
    Message read;
    EXPECT_TRUE(IsInvalid(
        Read(Array<int64_t>::Of(words), NumParts(message), message.has_counts, &read), {"words"}));
    words.pop_back();
    while (!words.empty()) {
      words.pop_back();
      EXPECT_TRUE(
          IsInvalid(Read(Array<int64_t>::Of(words), NumParts(message), message.has_counts, &read),
                    {"message", "must run the same version"}));
    }
  }
}

// Every word becomes another one: an error, or a message that, written, is read as the same.
TEST(KeyMessage, OfAnyWordsIsRefusedOrReadAsItIs) {
  constexpr int64_t kWords[] = {kInt64Min,
                                kInt64Min + 1,
                                -2,
                                -1,
                                0,
                                1,
                                2,
                                3,
                                5,
                                6,
                                7,
                                8,
                                9,
                                int64_t{1} << 31,
                                int64_t{1} << 32,
                                int64_t{1} << 60,
                                kInt64Max - 1,
                                kInt64Max,
                                kFormat,
                                kFormat + 1,
                                kFormatWithCounts};
  Random random(4);
  int num_read = 0;
  for (int round = 0; round < NumCases(100); ++round) {
    const Message message = RandomMessage(&random);
    const Array<int64_t> words = Write(message);
    for (int64_t at = 0; at < words.size(); ++at) {
      for (const int64_t word : kWords) {
        Array<int64_t> changed = Array<int64_t>::Of(words.values());
        changed[at] = word;
        Message read;
        const Status status = Read(changed, NumParts(message), message.has_counts, &read);
        if (!status.ok()) {
          EXPECT_TRUE(IsInvalid(status, {"message", "must run the same version"}));
          continue;
        }
        ++num_read;
        for (const int32_t count : read.counts) EXPECT_GE(count, 0);
        EXPECT_LE(Write(read).size(), changed.size());
        Message again;
        ASSERT_TRUE(IsOk(Read(Write(read), NumParts(read), read.has_counts, &again)));
        ASSERT_TRUE(again == read) << "word " << at << " = " << word;
      }
    }
  }
  EXPECT_GT(num_read, 100);
}

TEST(SplitMessage, SaysWhereTheRowsOfEachTableGo) {
  const Array<int64_t> words = Write({4, {{7, 3}, {}, {9}}, true, {1, 2, 5}});
  KeyMessage message;
  ASSERT_TRUE(IsOk(ReadMessage(words.view(), 3, true, &message)));
  const Ints row_bytes = {8, 100, 3};
  std::vector<MessagePart> parts;
  int64_t num_bytes = 0;
  ASSERT_TRUE(IsOk(SplitMessage(message, AsSpan(row_bytes), &parts, &num_bytes)));
  EXPECT_EQ(num_bytes, 19);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ((Ints{parts[0].first_byte, parts[1].first_byte, parts[2].first_byte}),
            (Ints{0, 16, 16}));
  EXPECT_EQ(Ints(parts[2].keys.begin(), parts[2].keys.end()), Ints{9});
  EXPECT_EQ(parts[0].counts[1], 2);
  EXPECT_EQ(parts[1].counts.size, 0);
  EXPECT_EQ(parts[2].counts[0], 5);
  parts.clear();
  const Ints many_bytes = {int64_t{1} << 62, 1, int64_t{1} << 62};
  EXPECT_TRUE(IsInvalid(SplitMessage(message, AsSpan(many_bytes), &parts, &num_bytes),
                        {"do not fit in memory"}));
}

}  // namespace
}  // namespace fused_embedding
