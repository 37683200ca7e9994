#include "tf_ops/core/input/column_keys.h"

#include <algorithm>
#include <utility>

#include "tf_ops/core/base/simd.h"

namespace fused_embedding {
namespace {

// Numbers of a block are all small, or each is hashed by itself: ids are mostly small.
constexpr int64_t kBlock = 256;

template <typename Integer>
FE_INLINE bool AreSmall(const Integer* values, int64_t size) {
  uint64_t largest = 0;  // of negative ones: more than kMaxSmall
  for (int64_t i = 0; i < size; ++i) {
    largest = std::max(largest, static_cast<uint64_t>(int64_t{values[i]}));
  }
  return largest <= fingerprint::kMaxSmall;
}

template <typename Integer>
FE_INLINE void HashBlock(const Integer* values, int64_t size, uint64_t num_buckets, int64_t* keys) {
  uint64_t hashes[kBlock];
  for (int64_t i = 0; i < size; ++i) {
    hashes[i] = fingerprint::OfSmallWithoutBranches(static_cast<uint64_t>(values[i]));
  }
  for (int64_t i = 0; i < size; ++i) keys[i] = static_cast<int64_t>(hashes[i] % num_buckets);
}

template <int64_t kVectorBytes, typename Integer>
FE_INLINE void HashNumbers(Span<const Integer> values, int64_t begin, int64_t end,
                           uint64_t num_buckets, int64_t* keys) {
  constexpr bool kHasVectorsOf64Bits = kVectorBytes >= 32;
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t size = std::min(kBlock, end - first);
    if (kHasVectorsOf64Bits && AreSmall(values.data + first, size)) {
      HashBlock(values.data + first, size, num_buckets, keys + first);
      continue;
    }
    for (int64_t i = first; i < first + size; ++i) {
      keys[i] = static_cast<int64_t>(Fingerprint64(int64_t{values[i]}) % num_buckets);
    }
  }
}

}  // namespace

Status ParseKeyKind(std::string_view name, KeyKind* kind) {
  constexpr std::pair<std::string_view, KeyKind> kKinds[] = {
      {"identity", KeyKind::kIdentity},     {"hash", KeyKind::kHash},
      {"vocabulary", KeyKind::kVocabulary}, {"bucketized", KeyKind::kBucketized},
      {"cross_part", KeyKind::kCrossPart},
  };
  for (const auto& [of_kind, value] : kKinds) {
    if (of_kind != name) continue;
    *kind = value;
    return Status();
  }
  return InvalidArgument("kind must be identity, hash, vocabulary, bucketized or cross_part, got '",
                         name, "'");
}

Status CheckKeyRule(const KeyRule& rule, FeatureType type) {
  if (type == FeatureType::kText && rule.kind == KeyKind::kIdentity) {
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

template <typename Integer>
void WriteHashes(const KeyRule& rule, Span<const Integer> values, int64_t begin, int64_t end,
                 int64_t* keys) {
  const auto num_buckets = static_cast<uint64_t>(rule.num_buckets);
  WithSimd([&](auto vector_bytes) FE_INLINE_LAMBDA {
    HashNumbers<vector_bytes()>(values, begin, end, num_buckets, keys);
  });
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
template void WriteHashes(const KeyRule&, Span<const int32_t>, int64_t, int64_t, int64_t*);
template void WriteHashes(const KeyRule&, Span<const int64_t>, int64_t, int64_t, int64_t*);

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
