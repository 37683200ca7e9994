#include "tf_ops/core/input/parse_example.h"

#include <cstring>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/input/odd_example.h"

namespace fused_embedding {
namespace {

using Strings = std::vector<std::string>;

// What an op's string is for core.
struct Text {
  void Assign(const uint8_t* data, size_t size) {
    value.assign(reinterpret_cast<const char*>(data), size);
  }
  void AssignWord(uint64_t word, size_t size) {
    value.assign(reinterpret_cast<const char*>(&word), size);
  }
  std::string value = "none";
};

std::string Varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
  return bytes + static_cast<char>(number);
}
std::string Delimited(int number, const std::string& content) {
  return static_cast<char>(DelimitedTag(number)) + Varint(content.size()) + content;
}
std::string Texts(const Strings& values) {
  std::string content;
  for (const std::string& value : values) content += Delimited(1, value);
  return Delimited(1, content);
}
std::string Reals(const std::vector<float>& values, bool is_tagged = false) {
  std::string content;
  for (const float value : values) {
    if (is_tagged) content += static_cast<char>(kFixed32Tag);
    content.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return Delimited(2, is_tagged ? content : Delimited(1, content));
}
std::string Integers(const std::vector<int64_t>& values, bool is_tagged = false) {
  std::string content;
  for (const int64_t value : values) {
    if (is_tagged) content += static_cast<char>(kVarintTag);
    content += Varint(static_cast<uint64_t>(value));
  }
  return Delimited(3, is_tagged ? content : Delimited(1, content));
}
std::string Entry(const std::string& name, const std::string& feature) {
  return Delimited(1, Delimited(1, name) + Delimited(2, feature));
}
std::string ExampleOf(const Strings& entries) {
  std::string content;
  for (const std::string& entry : entries) content += entry;
  return Delimited(1, content);
}

// The features s, f and i, in one layout.
std::vector<ExampleFeature> Features(FeatureLayout layout, int64_t num_values = 1) {
  std::vector<ExampleFeature> features;
  const std::string_view names = "sfi";
  for (size_t i = 0; i < names.size(); ++i) {
    ExampleFeature feature;
    feature.name = names.substr(i, 1);
    feature.kind = static_cast<ListKind>(i + 1);
    feature.layout = layout;
    feature.num_values = num_values;
    feature.has_default = true;
    feature.shape = "[shape]";
    features.push_back(feature);
  }
  return features;
}

// Bytes that end where their memory ends, so that a sanitizer sees what is read behind them.
class ExactBytes {
 public:
  explicit ExactBytes(const Strings& texts) {
    for (const std::string& text : texts) {
      memory_.emplace_back(static_cast<int64_t>(text.size()));
      if (!text.empty()) std::memcpy(&memory_.back()[0], text.data(), text.size());
      views_.push_back(text.empty() ? std::string_view()
                                    : std::string_view(&memory_.back()[0], text.size()));
    }
  }
  Span<const std::string_view> views() const { return AsSpan(views_); }

 private:
  std::vector<Array<char>> memory_;
  std::vector<std::string_view> views_;
};

// All outputs of a batch, as text.
struct Outcome {
  std::string error;
  Strings texts;
  std::vector<float> floats;
  std::vector<int64_t> integers, indices, splits;

  bool operator==(const Outcome& other) const {
    const bool same_floats = floats.size() == other.floats.size() &&
                             (floats.empty() || std::memcmp(floats.data(), other.floats.data(),
                                                            floats.size() * sizeof(float)) == 0);
    return error == other.error && texts == other.texts && same_floats &&
           integers == other.integers && indices == other.indices && splits == other.splits;
  }
};

Outcome Parse(const CpuExec& exec, const std::vector<ExampleFeature>& features,
              const ExampleBatch& batch) {
  Outcome outcome;
  ParsedExamples parsed;
  const Status status = parsed.Plan(exec, AsSpan(features), batch);
  if (!status.ok()) {
    outcome.error = status.message();
    return outcome;
  }
  const auto num_examples = static_cast<size_t>(batch.examples.size);
  const auto size = [&](int64_t f) {
    switch (features[static_cast<size_t>(f)].layout) {
      case FeatureLayout::kFixed:
        return num_examples * static_cast<size_t>(features[static_cast<size_t>(f)].num_values);
      case FeatureLayout::kPadded:
        return num_examples * static_cast<size_t>(parsed.MaxValues(f));
      case FeatureLayout::kSparse:
      case FeatureLayout::kRagged:
        break;
    }
    return static_cast<size_t>(parsed.NumValues(f));
  };
  std::vector<Text> texts(size(0));
  outcome.floats.resize(size(1));
  outcome.integers.resize(size(2));
  const std::vector<Text> default_texts(3);
  const std::vector<float> default_floats(3, 0.5f);
  const std::vector<int64_t> default_integers(3, 7);
  std::vector<std::vector<int64_t>> indices(3), splits(3);
  std::vector<FeatureOutput<Text>> outputs(3);
  outputs[0].values = texts.data();
  outputs[0].default_values = default_texts.data();
  outputs[1].values = outcome.floats.data();
  outputs[1].default_values = default_floats.data();
  outputs[2].values = outcome.integers.data();
  outputs[2].default_values = default_integers.data();
  for (size_t f = 0; f < 3; ++f) {
    const auto feature = static_cast<int64_t>(f);
    indices[f].resize(static_cast<size_t>(parsed.NumValues(feature)) * (batch.is_single ? 1 : 2));
    splits[f].resize(num_examples + 1);
    outputs[f].indices = indices[f].data();
    outputs[f].splits = splits[f].data();
    outputs[f].width = parsed.MaxValues(feature);
  }
  parsed.Run<Text>(exec, AsSpan(std::as_const(outputs)));
  for (const Text& text : texts) outcome.texts.push_back(text.value);
  for (size_t f = 0; f < 3; ++f) {
    outcome.indices.insert(outcome.indices.end(), indices[f].begin(), indices[f].end());
    outcome.splits.insert(outcome.splits.end(), splits[f].begin(), splits[f].end());
  }
  return outcome;
}

Outcome Parse(const std::vector<ExampleFeature>& features, const Strings& texts) {
  const ExactBytes examples(texts);
  return Parse(SerialExec(), features, {examples.views(), {}, false});
}

const Strings kExamples = {
    ExampleOf({Entry("s", Texts({"x", "a text of more than 8 bytes", ""})),
               Entry("f", Reals({0.5f, -1.5f})), Entry("i", Integers({-1, 300, 0}))}),
    "",
    ExampleOf({Entry("i", Integers({5, kInt64Min}, true)), Entry("f", Reals({2.f}, true)),
               Entry("unused", Texts({""})), Entry("s", Texts({"y"}))}),
};

TEST(ParseExample, Sparse) {
  const Outcome outcome = Parse(Features(FeatureLayout::kSparse), kExamples);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.texts, (Strings{"x", "a text of more than 8 bytes", "", "y"}));
  EXPECT_EQ(outcome.floats, (std::vector<float>{0.5f, -1.5f, 2.f}));
  EXPECT_EQ(outcome.integers, (std::vector<int64_t>{-1, 300, 0, 5, kInt64Min}));
  EXPECT_EQ(outcome.indices, (std::vector<int64_t>{0, 0, 0, 1, 0, 2, 2, 0,           // s
                                                   0, 0, 0, 1, 2, 0,                 // f
                                                   0, 0, 0, 1, 0, 2, 2, 0, 2, 1}));  // i
}

TEST(ParseExample, RaggedEndsAtSplits) {
  const Outcome outcome = Parse(Features(FeatureLayout::kRagged), kExamples);
  EXPECT_EQ(outcome.splits, (std::vector<int64_t>{0, 3, 3, 4, 0, 2, 2, 3, 0, 3, 3, 5}));
}

TEST(ParseExample, PaddedHasTheWidthOfTheLongest) {
  const Outcome outcome = Parse(Features(FeatureLayout::kPadded), kExamples);
  EXPECT_EQ(outcome.floats, (std::vector<float>{0.5f, -1.5f, 0.5f, 0.5f, 2.f, 0.5f}));
  EXPECT_EQ(outcome.integers, (std::vector<int64_t>{-1, 300, 0, 7, 7, 7, 5, kInt64Min, 7}));
}

TEST(ParseExample, FixedHasDefaults) {
  const std::string row = ExampleOf({Entry("f", Reals({3.f, 4.f})), Entry("i", Integers({1, 2}))});
  const Outcome outcome = Parse(Features(FeatureLayout::kFixed, 2), {"", row});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.texts, (Strings{"none", "none", "none", "none"}));
  EXPECT_EQ(outcome.floats, (std::vector<float>{0.5f, 0.5f, 3.f, 4.f}));
  EXPECT_EQ(outcome.integers, (std::vector<int64_t>{7, 7, 1, 2}));
}

TEST(ParseExample, ErrorsNameTheFirstBadExample) {
  const std::vector<ExampleFeature> features = Features(FeatureLayout::kSparse);
  Strings rows(200, kExamples[0]);
  rows[150] = "\xff";
  rows[100] = ExampleOf({Entry("s", Reals({1.f}))});
  EXPECT_EQ(Parse(features, rows).error,
            "Name: <unknown>, Key: s, Index: 100.  Data types don't match. Expected type: string, "
            "Actual type: float");
  rows[70] = "\x7f";
  EXPECT_EQ(Parse(features, rows).error, "Could not parse example input, value: '\x7f'");
}

TEST(ParseExample, LengthsOfTwoGigabytesAreErrors) {
  const std::string big = Varint(uint64_t{1} << 31);
  for (const std::string& list :
       {Delimited(1, "\x0a" + big + "abc"), Delimited(2, "\x0a" + big + "abcd")}) {
    const std::string name = list[0] == '\x0a' ? "s" : "f";
    const Outcome outcome =
        Parse(Features(FeatureLayout::kSparse), {ExampleOf({Entry(name, list)})});
    EXPECT_NE(outcome.error.find("Can't parse serialized Example."), std::string::npos);
  }
}

TEST(ParseExample, NoNameIsWantedTwice) {
  std::vector<ExampleFeature> features = Features(FeatureLayout::kSparse);
  features[2].name = "s";
  EXPECT_NE(Parse(features, {}).error.find("wanted twice"), std::string::npos);
}

TEST(ParseExample, ANameIsFoundAmongManyThatEndAlike) {
  Strings names;
  for (int i = 0; i < 60; ++i) names.push_back(std::string(static_cast<size_t>(i), 'n'));
  for (int i = 9; i < 60; ++i) names.push_back("a" + std::string(static_cast<size_t>(i), 'n'));
  std::vector<ExampleFeature> features(names.size());
  for (size_t i = 0; i < names.size(); ++i) features[i].name = names[i];
  FeatureNames found;
  ASSERT_TRUE(IsOk(found.Set(AsSpan(features))));
  const ExactBytes exact(names);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string_view name = exact.views()[static_cast<int64_t>(i)];
    EXPECT_EQ(found.Find(name, name.data() + name.size()), static_cast<int>(i));
    const std::string other = "b" + names[i];
    EXPECT_EQ(found.Find(other, other.data() + other.size()), -1);
  }
}

// --- Random bytes ---

std::string RandomExample(Random* random) {
  Strings entries;
  for (int64_t n = RandomInt(random, 0, 5); n > 0; --n) {
    const auto size = static_cast<size_t>(std::max<int64_t>(RandomInt(random, -2, 4), 0));
    std::vector<int64_t> integers(size);
    for (int64_t& value : integers)
      value = static_cast<int64_t>((*random)() >> RandomInt(random, 0, 63));
    const std::string text(static_cast<size_t>(RandomInt(random, 0, 140)), 't');
    const Strings lists = {Texts(Strings(size, text)),
                           Reals(std::vector<float>(size, 2.f), RandomBool(random)),
                           Integers(integers, RandomBool(random))};
    const int64_t kind = RandomInt(random, 0, 2);
    const bool is_right = RandomBool(random, 0.9);
    const std::string names = "sfi";
    entries.push_back(Entry(names.substr(static_cast<size_t>(kind), 1),
                            lists[static_cast<size_t>(is_right ? kind : RandomInt(random, 0, 2))]));
  }
  std::string bytes = ExampleOf(entries);
  for (int64_t n = RandomInt(random, 0, 2); n > 0 && !bytes.empty(); --n) {
    const auto at =
        static_cast<size_t>(RandomInt(random, 0, static_cast<int64_t>(bytes.size()) - 1));
    const std::string special("\x00\x01\x04\x08\x0a\x0d\x12\x1a\x7f\x80\xff", 11);
    switch (RandomInt(random, 0, 4)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << RandomInt(random, 0, 7)));
        break;
      case 1:
        bytes[at] = special[static_cast<size_t>(RandomInt(random, 0, 10))];
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, special, static_cast<size_t>(RandomInt(random, 0, 10)), 3);
        break;
      case 4:
        bytes += bytes.substr(at);
        break;
    }
  }
  return bytes;
}

template <typename Value>
std::vector<Value> ValuesOf(const ExampleList& list) {
  std::vector<Value> values(list.num_values);
  if (list.num_values > 0) CopyValues(list, values.data());
  return values;
}

// A list as bytes, whose values are those of a feature of this kind.
std::string BytesOf(const ExampleList& list, ListKind kind) {
  std::string bytes = list.IsPresent() ? "present " : "absent ";
  if (kind == ListKind::kText) {
    for (const Text& text : ValuesOf<Text>(list)) bytes += Delimited(1, text.value);
  } else if (kind == ListKind::kFloat) {
    const std::vector<float> values = ValuesOf<float>(list);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  } else {
    for (const int64_t value : ValuesOf<int64_t>(list)) bytes += std::to_string(value) + " ";
  }
  return bytes;
}

// What the fast reader takes, the slow one takes too, with the same values.
void ExpectPlainIsOdd(const std::vector<ExampleFeature>& features, std::string_view example,
                      bool is_single) {
  FeatureNames names;
  ASSERT_TRUE(IsOk(names.Set(AsSpan(features))));
  std::vector<ExampleList> plain(3), odd(3);
  const PlainExample reader(AsSpan(features), names, is_single);
  if (!reader.Read(example, {plain.data(), 1})) return;
  const OddExample slow_reader(AsSpan(features), names, is_single);
  ASSERT_TRUE(IsOk(slow_reader.Read(example, {odd.data(), 1})));
  for (size_t f = 0; f < 3; ++f) {
    EXPECT_EQ(BytesOf(plain[f], features[f].kind), BytesOf(odd[f], features[f].kind));
  }
}

TEST(ParseExample, RandomBytesAreReadTheSameByBothReadersAndAllThreads) {
  Random random(1);
  const ThreadedExec threads(3);
  for (int round = 0; round < NumCases(400); ++round) {
    Strings texts;
    for (int64_t n = RandomInt(&random, 0, 200); n > 0; --n)
      texts.push_back(RandomExample(&random));
    const ExactBytes examples(texts);
    const auto layout = static_cast<FeatureLayout>(round % 4);
    const std::vector<ExampleFeature> features = Features(layout, 1 + round / 4 % 2);
    std::vector<std::string_view> accepted;
    for (const std::string_view example : examples.views()) {
      ExpectPlainIsOdd(features, example, round % 3 == 0);
      const Outcome one = Parse(SerialExec(), features, {{&example, 1}, {}, round % 3 == 0});
      const Outcome in_batch = Parse(SerialExec(), features, {{&example, 1}, {}, false});
      if (in_batch.error.empty()) accepted.push_back(example);
    }
    for (const Span<const std::string_view> batch :
         {examples.views(), AsSpan(std::as_const(accepted))}) {
      const Outcome serial = Parse(SerialExec(), features, {batch, {}, false});
      EXPECT_TRUE(serial == Parse(threads, features, {batch, {}, false}));
    }
    const Outcome all = Parse(SerialExec(), features, {AsSpan(std::as_const(accepted)), {}, false});
    EXPECT_EQ(all.error, "");
  }
}

}  // namespace
}  // namespace fused_embedding
