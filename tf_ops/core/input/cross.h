// Crosses of features: a key for each combination of their values in a row, one of each feature.
// The same keys in the same order as stock's SparseCross with hashed_output.

#ifndef FUSED_EMBEDDING_CORE_INPUT_CROSS_H_
#define FUSED_EMBEDDING_CORE_INPUT_CROSS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

struct CrossRule {
  int64_t num_buckets = 1;
  uint64_t hash_key = 0;
};
Status CheckCrossRule(const CrossRule& rule);

// One feature of a cross.
struct CrossPart {
  Span<const int64_t> keys;
  const int64_t* rows = nullptr;  // of key i: rows[i * row_stride], ascending
  int64_t row_stride = 1;

  int64_t row(int64_t i) const { return rows[i * row_stride]; }
};

class Cross {
 public:
  Cross(const CrossRule& rule, std::vector<CrossPart> parts)
      : rule_(rule), parts_(std::move(parts)) {}

  // Number of keys, and the largest number of a row. InvalidArgument unless the rows of each part
  // are ascending and in [0, num_rows).
  Status Count(int64_t num_rows, int64_t* size, int64_t* width) const;

  // After Count. Writes the key and the row of each combination; the last part varies fastest.
  void Write(int64_t* keys, int64_t* rows) const;

 private:
  // The keys of a part in one row.
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };
  using Ranges = std::vector<Range>;  // of each part

  // Calls body(row, ranges) for each row that has keys of all parts.
  template <typename Body>
  void ForEachRow(const Body& body) const;
  int64_t* WriteRow(const Ranges& ranges, size_t part, uint64_t hash, int64_t* keys) const;

  CrossRule rule_;
  std::vector<CrossPart> parts_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_INPUT_CROSS_H_
