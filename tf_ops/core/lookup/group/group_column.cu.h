// Columns of a grouped lookup in device memory, so that one launch does a stage of all of them.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_COLUMN_CU_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_COLUMN_CU_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/group/group_column.h"

namespace fused_embedding {

// What a scan of a column's pairs saw.
struct ColumnReport {
  FirstPosition first_bad_row, first_bad_id;
  uint32_t seen = 0;  // bits, see group_column.cu.cc
};

// CheckColumns in two steps, for a caller that reads back more than the check: after StartCheck and
// the wait, FinishCheck returns what CheckColumns would.
struct ColumnCheck {
  DeviceBuffer<ColumnReport> device_reports;
  std::vector<ColumnReport> reports;  // [num_columns] after the wait
};
template <typename T>
Status StartCheck(const GpuExec& exec, Span<const GroupColumn<T>> columns, ColumnCheck* check,
                  Readback* readback);
template <typename T>
Status FinishCheck(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                   const ColumnCheck& check, std::vector<PairOrder>* orders);

// A column among others, whose pairs and rows are laid end to end.
template <typename T>
struct GpuColumn {
  GroupColumn<T> column;
  int64_t first_pair = 0;
  int64_t first_row = 0;
  Range pair_blocks, row_blocks;  // of kernels that go over all pairs, or rows

  // Calls body(pair), or body(row), for those that this thread has.
  template <typename Body>
  __device__ void ForEachPair(const Body& body) const {
    ForEachItem(pair_blocks, column.num_pairs(), body);
  }
  template <typename Body>
  __device__ void ForEachRow(const Body& body) const {
    ForEachItem(row_blocks, column.num_rows, body);
  }
};

// In host memory: who has kernels that read `columns` uploads them.
template <typename T>
struct LaidOutColumns {
  std::vector<GpuColumn<T>> columns;
  int64_t num_pairs = 0, num_rows = 0;
  int64_t num_pair_blocks = 0, num_row_blocks = 0;
};

// The columns of one table after those of another, in their order: numbers of columns.
std::vector<int64_t> ColumnsByTable(Span<const int64_t> table_of_column);

// Lays columns whose sizes were checked end to end.
template <typename T>
Status LayOutColumns(Span<const GroupColumn<T>> columns, LaidOutColumns<T>* laid_out);

// Writes counts [num_rows]: how many pairs are usable of each row of all columns.
template <typename T>
Status CountPairs(const GpuExec& exec, const LaidOutColumns<T>& laid_out,
                  const DeviceBuffer<GpuColumn<T>>& device_columns, Span<int32_t> counts);

// The pairs of all columns by row, those with a row out of range anywhere: splits [num_rows + 1],
// and `order` [num_pairs] or, where they came that way, nothing.
template <typename T>
Status GroupColumnsByRow(const GpuExec& exec, const LaidOutColumns<T>& laid_out,
                         const DeviceBuffer<GpuColumn<T>>& device_columns, bool are_sorted,
                         GpuPairGroups* groups);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_COLUMN_CU_H_
