#include "tf_ops/core/lookup/remote/key_message.h"

#include "tests/cpp/key_message_testing.h"
#include "tf_ops/core/lookup/remote/remote_rows.h"

namespace fused_embedding {
namespace {

Status Read(const Array<int64_t>& words, int64_t num_parts, bool has_counts, Message* message) {
  KeyMessage read;
  FE_RETURN_IF_ERROR(ReadMessage(words.view(), num_parts, has_counts, &read));
  *message = {read.header.step, {}, read.header.has_counts, {}};
  const int64_t* key = read.keys.begin();
  for (const int64_t num_keys : read.header.num_keys) {
    message->keys.emplace_back(key, key + num_keys);
    key += num_keys;
  }
  EXPECT_EQ(key, read.keys.end());
  message->counts.assign(read.counts.span().begin(), read.counts.span().end());
  return Status();
}

Message RandomMessage(Random* random) {
  Message message;
  message.step = RandomBool(random) ? RandomInt(random, -1, 5) : kInt64Max;
  message.has_counts = RandomBool(random);
  for (int64_t p = RandomInt(random, 0, 4); p > 0; --p) {
    message.keys.emplace_back();
    for (int64_t i = RandomInt(random, 0, 4); i > 0; --i) {
      message.keys.back().push_back(static_cast<int64_t>((*random)()));
      if (!message.has_counts) continue;
      message.counts.push_back(static_cast<int32_t>(RandomInt(random, 0, 0x7FFFFFFF)));
    }
  }
  return message;
}

int64_t NumParts(const Message& message) { return static_cast<int64_t>(message.keys.size()); }

TEST(KeyMessage, TheExampleOfItsHeader) {
  const Message message = {4, {{7, 3}, {9}}, true, {1, 2, 5}};
  EXPECT_EQ(Write(message).values(),
            (Ints{kFormatWithCounts, 4, 2, 2, 1, 7, 3, 9, 1 + (int64_t{2} << 32), 5}));
  EXPECT_EQ(Write({-1, {{7, 3}, {9}}, false, {}}).values(), (Ints{kFormat, -1, 2, 2, 1, 7, 3, 9}));
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
                          {"message has format", "must run the same version"}));
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

// Every word becomes another one: an error, or a message that has the same words but for the half
// that holds no count.
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
        Array<int64_t> again = Write(read);
        ASSERT_EQ(again.size(), changed.size());
        const bool has_half = read.has_counts && read.counts.size() % 2 == 1;
        if (has_half && at == again.size() - 1) again[at] |= word & ~int64_t{0xFFFFFFFF};
        ASSERT_EQ(again.values(), changed.values()) << "word " << at << " = " << word;
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
