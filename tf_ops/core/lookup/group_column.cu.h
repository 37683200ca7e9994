// Columns of a grouped lookup in device memory, so that one launch does a stage of all of them.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_CU_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_CU_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/lookup/group_column.h"

namespace fused_embedding {

// A column among others, whose pairs and rows are laid end to end.
template <typename T>
struct GpuColumn {
  GroupColumn<T> column;
  int64_t first_pair = 0;
  int64_t first_row = 0;
  Range pair_blocks;  // of kernels that go over all pairs, see ForEachPair

  // Calls body(pair) for the pairs that this thread has.
  template <typename Body>
  __device__ void ForEachPair(const Body& body) const {
    const int64_t first = (int64_t{blockIdx.x} - pair_blocks.begin) * kPairsPerBlock;
    const int64_t last = first + kPairsPerBlock;
    const int64_t end = last < column.nnz() ? last : column.nnz();
    for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x) body(i);
  }

  static constexpr int64_t kPairsPerBlock = 1024;
};

template <typename T>
struct GpuColumns {
  DeviceBuffer<GpuColumn<T>> columns;
  std::vector<GpuColumn<T>> on_host;
  int64_t num_pairs = 0, num_rows = 0;
  int64_t num_pair_blocks = 0;
};

// Lays the columns end to end and copies what describes them. Those without values have no rows and
// pairs. The columns' sizes were checked.
template <typename T>
Status UploadColumns(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                     GpuColumns<T>* uploaded);

// Writes counts [num_rows]: how many pairs are kept of each row of all columns, which were checked.
template <typename T>
Status CountKeptPairs(const GpuExec& exec, const GpuColumns<T>& columns, Span<int32_t> counts);

// The pairs of all columns by row: splits [num_rows + 1], and `order` [num_pairs] or, where they
// came that way, nothing.
template <typename T>
Status GroupColumnsByRow(const GpuExec& exec, const GpuColumns<T>& columns, bool are_sorted,
                         GpuPairGroups* groups);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_CU_H_
