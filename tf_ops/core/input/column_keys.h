// Keys of a batch's features: what a feature column does to its values before the lookup. A value
// becomes a key by the column's rule; a dense feature also says by its place which row it is in.
// cross.h combines the keys of several features.

#ifndef FUSED_EMBEDDING_CORE_INPUT_COLUMN_KEYS_H_
#define FUSED_EMBEDDING_CORE_INPUT_COLUMN_KEYS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

#include "tf_ops/core/base/column_work.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/input/fingerprint.h"
#include "tf_ops/core/input/modulus.h"

namespace fused_embedding {

enum class KeyKind {
  kIdentity,    // the value itself
  kIndex,       // the value itself; a negative one counts from the end, num_buckets
  kHash,        // Fingerprint64 of a text, or of a number's decimal text, modulo num_buckets
  kVocabulary,  // the index in a vocabulary; of a value outside it, an index behind the last one
  kBucketized,  // the number of boundaries <= the value, plus num_buckets for each column before
  kCrossPart,   // what a cross hashes: a number itself, Fingerprint64 of a text
};
Status ParseKeyKind(std::string_view name, KeyKind* kind);

enum class FeatureType { kInteger, kFloat, kText };

struct KeyRule {
  KeyKind kind = KeyKind::kIdentity;
  // identity, index, hash: keys are below it. vocabulary: of values outside the vocabulary.
  // bucketized: the number of boundaries + 1.
  int64_t num_buckets = 1;
  // identity: the key of values outside [0, num_buckets); negative: they are their own keys.
  // vocabulary without buckets: the key of values outside it.
  int64_t default_key = -1;
  Span<const float> boundaries = {};  // bucketized: ascending
};

// Whether the numbers are those of the kind, and the kind one for such values.
Status CheckKeyRule(const KeyRule& rule, FeatureType type);

// Values that mean none in a dense feature, and are dropped.
inline bool IsNone(std::string_view text) { return text.empty(); }
template <typename Number>
std::enable_if_t<std::is_arithmetic_v<Number>, bool> IsNone(Number number) {
  return number == Number{-1};
}

// A value that is not in the vocabulary.
constexpr int64_t kNotFound = -1;

// A feature of a batch. Texts is a view of texts, with `size` and operator[].
template <typename Texts>
struct KeyColumn {
  std::variant<Span<const int32_t>, Span<const int64_t>, Span<const float>, Texts> values;
  KeyRule rule;
  bool drops_none = false;      // values that mean none have no key
  int64_t width = 1;            // bucketized: values of a row
  int64_t vocabulary_size = 0;  // vocabulary
  // [size], written. vocabulary: holds the index of each value before, or kNotFound.
  int64_t* keys = nullptr;

  int64_t size() const {
    return std::visit([](const auto& of_type) { return of_type.size; }, values);
  }
};

// Whether one of values [begin, end) means none.
template <typename Number>
bool HasNone(Span<const Number> values, int64_t begin, int64_t end);
template <typename Texts>
bool HasNone(const Texts& texts, int64_t begin, int64_t end) {
  bool found = false;
  for (int64_t i = begin; i < end; ++i) found |= IsNone(texts[i]);
  return found;
}

// Each of these writes keys[begin] to keys[end - 1].
template <typename Integer>
void WriteIdentities(const KeyRule& rule, Span<const Integer> values, int64_t begin, int64_t end,
                     int64_t* keys);
void WriteBuckets(const KeyRule& rule, Span<const float> values, int64_t width, int64_t begin,
                  int64_t end, int64_t* keys);
// Also returns HasNone.
template <typename Integer>
bool WriteHashes(const KeyRule& rule, Span<const Integer> values, int64_t begin, int64_t end,
                 int64_t* keys);

// Values that are hashed together: in one loop, and their remainders in another. Both loops become
// vectors.
constexpr int64_t kHashBlock = 256;

// Of kHashBlock texts of 8 to 16 bytes, all that their fingerprints depend on.
struct WordsOfTexts {
  uint64_t first[kHashBlock];  // the first 8 bytes
  uint64_t last[kHashBlock];   // the last 8 bytes
  uint64_t sizes[kHashBlock];

  // Returns false if the text is of another size.
  FE_INLINE bool Set(int64_t i, std::string_view text) {
    if (text.size() < 8 || text.size() > 16) return false;
    first[i] = fingerprint::Load64(text.data());
    last[i] = fingerprint::Load64(text.data() + text.size() - 8);
    sizes[i] = text.size();
    return true;
  }
};
// The keys of `size` texts, or of their fingerprints.
void WriteHashesOfWords(const WordsOfTexts& words, const Modulus& modulus, int64_t size,
                        int64_t* keys);
void WriteRemainders(const uint64_t* hashes, const Modulus& modulus, int64_t size, int64_t* keys);

// For texts, `texts[i]` is a std::string_view.
template <typename Texts>
bool WriteHashes(const KeyRule& rule, const Texts& texts, int64_t begin, int64_t end,
                 int64_t* keys) {
  const Modulus modulus(rule.num_buckets);
  bool has_none = false;
  for (int64_t first = begin; first < end; first += kHashBlock) {
    const int64_t size = std::min(kHashBlock, end - first);
    WordsOfTexts words;
    int64_t num_set = 0;
    while (num_set < size && words.Set(num_set, texts[first + num_set])) ++num_set;
    if (num_set == size) {
      WriteHashesOfWords(words, modulus, size, keys + first);
      continue;
    }
    uint64_t hashes[kHashBlock];
    for (int64_t i = 0; i < size; ++i) {
      const std::string_view text = texts[first + i];
      hashes[i] = Fingerprint64(text);
      has_none |= IsNone(text);
    }
    WriteRemainders(hashes, modulus, size, keys + first);
  }
  return has_none;
}

// Gives each value that is not in the vocabulary its key.
template <typename Values>
void WriteKeysOfNotFound(const KeyRule& rule, const Values& values, int64_t vocabulary_size,
                         int64_t begin, int64_t end, int64_t* keys) {
  for (int64_t i = begin; i < end; ++i) {
    if (keys[i] != kNotFound) continue;
    keys[i] = rule.default_key;
    if (rule.num_buckets == 0) continue;
    const uint64_t hash = Fingerprint64(values[i]);
    keys[i] =
        vocabulary_size + static_cast<int64_t>(hash % static_cast<uint64_t>(rule.num_buckets));
  }
}

// Returns whether one of the values is dropped.
template <typename Texts, typename Values>
bool WriteKeys(const KeyColumn<Texts>& column, const Values& values, int64_t begin, int64_t end) {
  const KeyRule& rule = column.rule;
  int64_t* keys = column.keys;
  constexpr bool kIsText = std::is_same_v<Values, Texts>;
  if constexpr (std::is_same_v<Values, Span<const float>>) {
    WriteBuckets(rule, values, column.width, begin, end, keys);
  } else if (rule.kind == KeyKind::kHash) {
    return WriteHashes(rule, values, begin, end, keys) && column.drops_none;
  } else if (rule.kind == KeyKind::kVocabulary) {
    WriteKeysOfNotFound(rule, values, column.vocabulary_size, begin, end, keys);
  } else if constexpr (kIsText) {
    for (int64_t i = begin; i < end; ++i) keys[i] = static_cast<int64_t>(Fingerprint64(values[i]));
  } else {
    WriteIdentities(rule, values, begin, end, keys);
  }
  return column.drops_none && HasNone(values, begin, end);
}

// Writes the keys of all columns, also of values that mean none, and sets has_none[c] where a
// column that drops them has some.
template <typename Texts>
void WriteColumnKeys(const CpuExec& exec, Span<const KeyColumn<Texts>> columns,
                     Span<std::atomic<bool>> has_none) {
  constexpr int64_t kValueNs = 5;
  ColumnWork work;
  for (const auto& column : columns) {
    if (!work.Add(column.size())) return;  // more values than memory has bytes
  }
  exec.ParallelFor(work.total(), kValueNs, [&](int64_t begin, int64_t end) {
    work.ForEach(begin, end, [&](int64_t c, int64_t first, int64_t last) {
      const bool found =
          std::visit([&](const auto& values) { return WriteKeys(columns[c], values, first, last); },
                     columns[c].values);
      if (found) has_none[c].store(true, std::memory_order_relaxed);
    });
  });
}

// Moves the keys and rows of values other than none to the front. Returns their number.
template <typename Texts>
int64_t DropNone(const KeyColumn<Texts>& column, int64_t* rows) {
  return std::visit(
      [&](const auto& values) {
        int64_t num_kept = 0;
        for (int64_t i = 0; i < values.size; ++i) {
          if (IsNone(values[i])) continue;
          column.keys[num_kept] = column.keys[i];
          rows[num_kept++] = rows[i];
        }
        return num_kept;
      },
      column.values);
}

// The row of each value of a matrix [size / width, width].
void WriteRowsOfMatrix(int64_t width, Span<int64_t> rows);

// The row of each value of a ragged feature: row r has the values from row_splits[r] up to
// row_splits[r + 1]. InvalidArgument if the splits are not of that many values.
Status WriteRowsOfRagged(Span<const int64_t> row_splits, Span<int64_t> rows);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_COLUMN_KEYS_H_
