// Sums of rows of a table, each times a factor: the results of grouped lookups. The order of
// additions is that of row_sum.h.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUMS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUMS_H_

#include <cstdint>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/lookup/rows/row_sum.h"
#include "tf_ops/core/lookup/rows/stored_rows.h"

namespace fused_embedding {

// Rows in flight, as in gather.cc: a row is fetched when as many pairs are left before its own.
constexpr int64_t kRowsInFlight = 24;

// Consecutive sums.
template <typename T>
struct RowSumBlock {
  static constexpr int64_t kMaxPairs = kTermsInBlock;

  // A sum of the pairs after those of the sum before it.
  struct Sum {
    T* out;  // [dim]
    Divisor<ComputeType<T>> divisor;
    int32_t num_pairs;
  };

  const T* table = nullptr;
  StoredRows stored;  // of float: its rows, if there are some, are read instead of those of `table`
  int64_t dim = 0;
  const int64_t* ids = nullptr;             // [num_pairs]: pair k adds row ids[k] of the table
  const ComputeType<T>* factors = nullptr;  // [num_pairs], or null: all 1
  int64_t num_pairs = 0;                    // at most kMaxPairs
  int64_t num_ahead = 0;                    // ids after them whose rows are fetched, if they exist
  const Sum* sums = nullptr;                // [num_sums]
  int64_t num_sums = 0;
  bool begins_inside = false;  // the first sum continues the last one of the block before
  bool ends_inside = false;    // the next block continues the last sum
};

// Writes the sums, each divided by its divisor. `parts` [dim] keeps a sum that goes on in the
// next block; not used unless one does.
template <typename T>
void AddUpRows(const RowSumBlock<T>& block, double* parts);

// AddUpRows of a block of stored rows.
void AddUpStoredRows(const RowSumBlock<float>& block, double* parts);

struct StoredTable {
  StoredRows rows;
  int64_t num_rows = 0;
  int64_t dim = 0;
};

// Where row i is written: at data + i * stride.
struct DecodedOut {
  float* data = nullptr;
  int64_t stride = 0;
};

// CopyRows of stored rows, which it decodes.
template <typename Id>
int64_t DecodeRows(const StoredTable& table, Span<const Id> ids, int64_t begin, int64_t end,
                   int64_t last, const DecodedOut& out);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_ROW_SUMS_H_
