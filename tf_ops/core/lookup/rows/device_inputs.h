// What tensors on a GPU need before they are inputs of core: on the CPU, OpKernels do this in
// place.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_DEVICE_INPUTS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_DEVICE_INPUTS_H_

#include <cstdint>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {

// Rows of one of several matrices in device memory: where it is, and the rows before it.
struct ShardRows {
  uintptr_t address = 0;
  int64_t first = 0;
};

// rows[u] is the address of row u of `shards` (host memory), one after the other; or, where there
// is a checked permutation [num_rows, 2], of row permutation[u, 1] of shard permutation[u, 0].
Status LocateRows(const GpuExec& exec, Span<const ShardRows> shards, int64_t row_bytes,
                  Span<const int32_t> permutation, Span<uintptr_t> rows);

// InvalidArgument names the first entry of a permutation [num_rows, 2] that is no row of a shard,
// or that came before. Waits: no address may be made of an entry that is wrong. `shard_sizes` is
// host memory.
Status CheckPermutation(const GpuExec& exec, Span<const int64_t> shard_sizes,
                        Span<const int32_t> permutation);

// The row of the last pair, -1 where there is none. Waits: it is the size of an output.
// InvalidArgument names the first row that is negative or smaller than the one before.
Status LastRowOf(const GpuExec& exec, const RowIds& rows, int64_t* last);

// out[i] = rows[i].
Status CopyRowIds(const GpuExec& exec, const RowIds& rows, int64_t* out);
// out[i] = i.
Status Enumerate(const GpuExec& exec, Span<int32_t> out);
// out[i] = flags[i] != 0.
Status FlagsToBools(const GpuExec& exec, Span<const int32_t> flags, Span<bool> out);

// out[i] = values[i], as numbers that are computed with. C is float or double.
template <typename Value, typename C>
Status ConvertValues(const GpuExec& exec, Span<const Value> values, C* out);
// The way back: out[i] = values[i], rounded once.
template <typename C, typename Value>
Status StoreValues(const GpuExec& exec, Span<const C> values, Value* out);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_DEVICE_INPUTS_H_
