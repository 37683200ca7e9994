#include "tf_ops/core/input/cross.h"

#include <algorithm>

#include "tf_ops/core/input/fingerprint.h"

namespace fused_embedding {
namespace {

// TensorFlow's FingerprintCat64, by which stock adds a feature to the hash of a cross.
uint64_t Add(uint64_t hash, uint64_t key) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  const uint64_t mixed = hash ^ kMul ^ fingerprint::ShiftMix(key * kMul) * kMul;
  return fingerprint::ShiftMix(fingerprint::ShiftMix(mixed * kMul) * kMul);
}

}  // namespace

Status CheckCrossRule(const CrossRule& rule) {
  if (rule.num_buckets >= 1) return Status();
  return InvalidArgument("cross_num_buckets must be at least 1, got ", rule.num_buckets);
}

template <typename Body>
void Cross::ForEachRow(const Body& body) const {
  Ranges ranges(parts_.size());
  const CrossPart& first = parts_[0];
  while (ranges[0].end < first.keys.size) {
    const int64_t row = first.row(ranges[0].end);
    bool has_keys = true;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const CrossPart& part = parts_[p];
      int64_t begin = ranges[p].end;
      while (begin < part.keys.size && part.row(begin) < row) ++begin;
      int64_t end = begin;
      while (end < part.keys.size && part.row(end) == row) ++end;
      ranges[p] = {begin, end};
      has_keys &= begin < end;
    }
    if (has_keys) body(row, ranges);
  }
}

Status Cross::Count(int64_t num_rows, int64_t* size, int64_t* width) const {
  for (const CrossPart& part : parts_) {
    int64_t least = 0;
    for (int64_t i = 0; i < part.keys.size; ++i) {
      const int64_t row = part.row(i);
      if (row < least || row >= num_rows) {
        return InvalidArgument("the rows of a crossed feature must be ascending and below ",
                               num_rows, ", but its value ", i, " is in row ", row);
      }
      least = row;
    }
  }
  *size = 0;
  *width = 0;
  bool is_too_large = false;
  ForEachRow([&](int64_t /*row*/, const Ranges& ranges) {
    int64_t of_row = 1;
    for (const Range& range : ranges) {
      is_too_large |= __builtin_mul_overflow(of_row, range.end - range.begin, &of_row);
    }
    is_too_large |= __builtin_add_overflow(*size, of_row, size);
    *width = std::max(*width, of_row);
  });
  return is_too_large ? InvalidArgument("a cross has more than 2^63 keys") : Status();
}

void Cross::Write(int64_t* keys, int64_t* rows) const {
  ForEachRow([&](int64_t row, const Ranges& ranges) {
    int64_t* end = WriteRow(ranges, 0, rule_.hash_key, keys);
    rows = std::fill_n(rows, end - keys, row);
    keys = end;
  });
}

int64_t* Cross::WriteRow(const Ranges& ranges, size_t part, uint64_t hash, int64_t* keys) const {
  const auto num_buckets = static_cast<uint64_t>(rule_.num_buckets);
  for (int64_t i = ranges[part].begin; i < ranges[part].end; ++i) {
    const uint64_t with_key = Add(hash, static_cast<uint64_t>(parts_[part].keys[i]));
    if (part + 1 < parts_.size()) {
      keys = WriteRow(ranges, part + 1, with_key, keys);
    } else {
      *keys++ = static_cast<int64_t>(with_key % num_buckets);
    }
  }
  return keys;
}

}  // namespace fused_embedding
