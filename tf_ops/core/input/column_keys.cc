#include "tf_ops/core/input/column_keys.h"

#include <algorithm>
#include <utility>

#include "tf_ops/core/base/simd.h"

namespace fused_embedding {
namespace {

template <typename Integer>
FE_INLINE uint64_t LargestOf(const Integer* values, int64_t size) {
  uint64_t largest = 0;  // of negative ones: more than kMaxSmall
  for (int64_t i = 0; i < size; ++i) {
    largest = std::max(largest, static_cast<uint64_t>(int64_t{values[i]}));
  }
  return largest;
}

template <int kMaxDigits, typename Integer>
FE_INLINE void HashSmall(const Integer* values, int64_t size, uint64_t* hashes) {
  for (int64_t i = 0; i < size; ++i) {
    hashes[i] = fingerprint::OfSmallWithoutBranches<kMaxDigits>(static_cast<uint64_t>(values[i]));
  }
}

template <int64_t kVectorBytes>
FE_INLINE void Reduce(const uint64_t* hashes, const Modulus& modulus, int64_t size, int64_t* keys) {
  constexpr bool kMultipliesIn64Bits = kVectorBytes >= 64;  // otherwise vectors are slower
  for (int64_t i = 0; i < size; ++i) {
    keys[i] = static_cast<int64_t>(kMultipliesIn64Bits ? modulus.OfInVectors(hashes[i])
                                                       : modulus.Of(hashes[i]));
  }
}

// Returns HasNone. Ids are mostly small: then a block has vectors, otherwise each number its text.
template <int64_t kVectorBytes, typename Integer>
FE_INLINE bool HashNumbers(Span<const Integer> values, int64_t begin, int64_t end,
                           const Modulus& modulus, int64_t* keys) {
  constexpr bool kHasVectorsOf64Bits = kVectorBytes >= 32;
  bool has_none = false;
  for (int64_t first = begin; first < end; first += kHashBlock) {
    const Integer* block = values.data + first;
    const int64_t size = std::min(kHashBlock, end - first);
    const uint64_t largest = LargestOf(block, size);
    uint64_t hashes[kHashBlock];
    if (kHasVectorsOf64Bits && largest <= fingerprint::kMaxSmall / 10) {
      HashSmall<7>(block, size, hashes);
    } else if (kHasVectorsOf64Bits && largest <= fingerprint::kMaxSmall) {
      HashSmall<8>(block, size, hashes);
    } else {
      for (int64_t i = 0; i < size; ++i) {
        hashes[i] = Fingerprint64(int64_t{block[i]});
        has_none |= IsNone(block[i]);
      }
    }
    Reduce<kVectorBytes>(hashes, modulus, size, keys + first);
  }
  return has_none;
}

// As numpy has it: -1 is the last of `size`. What is below -size stays negative.
template <typename Integer>
void WriteIndices(int64_t size, Span<const Integer> values, int64_t begin, int64_t end,
                  int64_t* keys) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t value = values[i];
    keys[i] = value < 0 ? value + size : value;
  }
}

}  // namespace

Status ParseKeyKind(std::string_view name, KeyKind* kind) {
  constexpr std::pair<std::string_view, KeyKind> kKinds[] = {
      {"identity", KeyKind::kIdentity},
      {"index", KeyKind::kIndex},
      {"hash", KeyKind::kHash},
      {"vocabulary", KeyKind::kVocabulary},
      {"bucketized", KeyKind::kBucketized},
      {"cross_part", KeyKind::kCrossPart},
  };
  for (const auto& [of_kind, value] : kKinds) {
    if (of_kind != name) continue;
    *kind = value;
    return Status();
  }
  return InvalidArgument(
      "kind must be identity, index, hash, vocabulary, bucketized or cross_part, got '", name, "'");
}

Status CheckKeyRule(const KeyRule& rule, FeatureType type) {
  const bool is_number = rule.kind == KeyKind::kIdentity || rule.kind == KeyKind::kIndex;
  if (type == FeatureType::kText && is_number) {
    return InvalidArgument("texts have no identity: their kind must be hash or vocabulary");
  }
  if ((type == FeatureType::kFloat) != (rule.kind == KeyKind::kBucketized)) {
    return InvalidArgument("the kind of float values, and of no others, must be bucketized");
  }
  if (rule.kind == KeyKind::kVocabulary) {
    return rule.num_buckets >= 0 ? Status()
                                 : InvalidArgument("num_buckets of a vocabulary must not be ",
                                                   "negative, got ", rule.num_buckets);
  }
  if (rule.num_buckets < 1) {
    return InvalidArgument("num_buckets must be at least 1, got ", rule.num_buckets);
  }
  if (rule.default_key >= rule.num_buckets) {
    return InvalidArgument("default_key must be below num_buckets = ", rule.num_buckets, ", got ",
                           rule.default_key);
  }
  if (!std::is_sorted(rule.boundaries.begin(), rule.boundaries.end())) {
    return InvalidArgument("boundaries must be ascending");
  }
  return Status();
}

template <typename Integer>
void WriteIdentities(const KeyRule& rule, Span<const Integer> values, int64_t begin, int64_t end,
                     int64_t* keys) {
  if (rule.kind == KeyKind::kIndex) {
    WriteIndices(rule.num_buckets, values, begin, end, keys);
    return;
  }
  if (rule.kind == KeyKind::kCrossPart || rule.default_key < 0) {
    std::copy(values.data + begin, values.data + end, keys + begin);
    return;
  }
  const auto num_buckets = static_cast<uint64_t>(rule.num_buckets);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t value = values[i];
    keys[i] = static_cast<uint64_t>(value) < num_buckets ? value : rule.default_key;
  }
}

template <typename Number>
bool HasNone(Span<const Number> values, int64_t begin, int64_t end) {
  bool has_none = false;
  WithSimd([&]() FE_INLINE_LAMBDA {
    uint64_t found = 0;  // a local one stays in a register
    for (int64_t i = begin; i < end; ++i) found |= uint64_t{values[i] == Number{-1}};
    has_none = found != 0;
  });
  return has_none;
}

template <typename Integer>
bool WriteHashes(const KeyRule& rule, Span<const Integer> values, int64_t begin, int64_t end,
                 int64_t* keys) {
  const Modulus modulus(rule.num_buckets);
  bool has_none = false;
  WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
    has_none = HashNumbers<vector_bytes()>(values, begin, end, modulus, keys);
  });
  return has_none;
}

void WriteHashesOfWords(const WordsOfTexts& words, const Modulus& modulus, int64_t size,
                        int64_t* keys) {
  WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
    uint64_t hashes[kHashBlock];
    for (int64_t i = 0; i < size; ++i) {
      hashes[i] = fingerprint::Of8To16(words.first[i], words.last[i], words.sizes[i]);
    }
    Reduce<vector_bytes()>(hashes, modulus, size, keys);
  });
}

void WriteRemainders(const uint64_t* hashes, const Modulus& modulus, int64_t size, int64_t* keys) {
  WithSimd([&](auto vector_bytes)
               FE_INLINE_LAMBDA { Reduce<vector_bytes()>(hashes, modulus, size, keys); });
}

void WriteBuckets(const KeyRule& rule, Span<const float> values, int64_t width, int64_t begin,
                  int64_t end, int64_t* keys) {
  const Span<const float> boundaries = rule.boundaries;
  for (int64_t i = begin; i < end; ++i) {
    // NaN is in the last bucket, as in stock's Bucketize.
    const float* next = std::upper_bound(boundaries.begin(), boundaries.end(), values[i]);
    keys[i] = next - boundaries.begin() + i % width * rule.num_buckets;
  }
}

template void WriteIdentities(const KeyRule&, Span<const int32_t>, int64_t, int64_t, int64_t*);
template void WriteIdentities(const KeyRule&, Span<const int64_t>, int64_t, int64_t, int64_t*);
template bool WriteHashes(const KeyRule&, Span<const int32_t>, int64_t, int64_t, int64_t*);
template bool WriteHashes(const KeyRule&, Span<const int64_t>, int64_t, int64_t, int64_t*);
template bool HasNone(Span<const int32_t>, int64_t, int64_t);
template bool HasNone(Span<const int64_t>, int64_t, int64_t);
template bool HasNone(Span<const float>, int64_t, int64_t);

void WriteRowsOfMatrix(int64_t width, Span<int64_t> rows) {
  if (width == 1) {
    for (int64_t i = 0; i < rows.size; ++i) rows[i] = i;
    return;
  }
  int64_t row = 0;
  for (int64_t first = 0; first < rows.size; first += width, ++row) {
    std::fill(rows.data + first, rows.data + std::min(first + width, rows.size), row);
  }
}

Status WriteRowsOfRagged(Span<const int64_t> row_splits, Span<int64_t> rows) {
  int64_t begin = 0;
  for (int64_t i = 0; i < row_splits.size; ++i) {
    const int64_t end = row_splits[i];
    if (end < begin || end > rows.size || (i == 0 && end != 0)) {
      return InvalidArgument("row_splits must begin with 0 and not decrease up to the number of ",
                             "values, ", rows.size, ", but row_splits[", i, "] = ", end);
    }
    if (i > 0) std::fill(rows.data + begin, rows.data + end, i - 1);
    begin = end;
  }
  if (row_splits.empty() || begin != rows.size) {
    return InvalidArgument("row_splits must end with the number of values, ", rows.size, ", got ",
                           row_splits.empty() ? "none" : std::to_string(begin));
  }
  return Status();
}

}  // namespace fused_embedding
