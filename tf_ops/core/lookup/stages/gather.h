// Stage 4: the rows of a dense table.
//
//   table [[1, 2], [3, 4], [5, 6]], ids [2, 0]  ->  rows [[5, 6], [1, 2]]

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_STAGES_GATHER_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_STAGES_GATHER_H_

#include <cstdint>

#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Rows are bytes: one gather serves every value type.
struct TableView {
  const char* data = nullptr;
  int64_t num_rows = 0;
  int64_t row_bytes = 0;
};

// Where row i is written: at data + i * stride_bytes.
struct RowsOut {
  char* data = nullptr;
  int64_t stride_bytes = 0;
};

// Copies row ids[i] of the table to row i of `out` for i in [begin, end). Returns the position of
// the first id outside the table, where it stops, or `end`. Id is int32_t or int64_t. Rows of ids
// up to `last` may be prefetched.
template <typename Id>
int64_t CopyRows(const TableView& table, Span<const Id> ids, int64_t begin, int64_t end,
                 int64_t last, const RowsOut& out);

// Copies row ids[i] of the table to `out` + i * row_bytes. InvalidArgument names the first id
// outside [0, num_rows); `out` is then unspecified. Id is int32_t or int64_t.
template <typename Id>
Status Gather(const CpuExec& exec, const TableView& table, Span<const Id> ids, char* out);

// The same on a GPU, without a wait: an id outside the table gets zeros, as from TensorFlow's
// gather.
template <typename Id>
Status Gather(const GpuExec& exec, const TableView& table, Span<const Id> ids, char* out);

// Waits for what Gather does not: InvalidArgument names the first id outside [0, num_rows).
template <typename Id>
Status CheckIds(const GpuExec& exec, int64_t num_rows, Span<const Id> ids);

// The error of an id that the table has no row for.
Status NoSuchRow(int64_t id, int64_t position, int64_t num_rows);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_STAGES_GATHER_H_
