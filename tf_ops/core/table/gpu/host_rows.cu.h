// Rows of a table on a GPU in host memory.

#ifndef FUSED_EMBEDDING_CORE_TABLE_GPU_HOST_ROWS_CU_H_
#define FUSED_EMBEDDING_CORE_TABLE_GPU_HOST_ROWS_CU_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/table/gpu/gpu_table.h"

namespace fused_embedding {

// The arrays of GpuRows, less the scores, which follow from the rest.
struct HostRows {
  std::vector<int64_t> keys;
  std::vector<uint32_t> frequencies, versions;
  std::vector<char> rows;  // GpuTable::row_bytes() each

  int64_t size() const { return static_cast<int64_t>(keys.size()); }
};

// The rows of buckets [begin, end). Waits twice.
Status ExportToHost(const GpuExec& exec, const GpuTable& table, int64_t begin, int64_t end,
                    HostRows* rows);

// Upsert of the rows. Adds those that the table's budget has no room for, because they evict others
// or are refused, to `*num_lost`.
Status UpsertFromHost(const GpuExec& exec, const HostRows& rows, GpuTable* table,
                      int64_t* num_lost);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_GPU_HOST_ROWS_CU_H_
