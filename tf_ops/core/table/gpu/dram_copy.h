// A table on a GPU and a table in DRAM with the same content: how one is saved and restored by what
// saves and restores the other.

#ifndef FUSED_EMBEDDING_CORE_TABLE_GPU_DRAM_COPY_H_
#define FUSED_EMBEDDING_CORE_TABLE_GPU_DRAM_COPY_H_

#include <cstdint>

#include "tf_ops/core/table/embedding_table.h"
#include "tf_ops/core/table/gpu/gpu_table.h"

namespace fused_embedding {

// Copies all rows, slots and counts of keys without a row, in pieces. InvalidArgument if the
// tables' values, or slots that both have, differ; both have no content that a copy would mix with.
Status CopyToDram(const GpuExec& gpu, const GpuTable& from, EmbeddingTable* to);

// The same from a table without a cold store. Adds the rows and counts that the budget of `to` has
// no room for to `*num_lost`.
Status CopyFromDram(const GpuExec& gpu, const EmbeddingTable& from, GpuTable* to,
                    int64_t* num_lost);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_GPU_DRAM_COPY_H_
