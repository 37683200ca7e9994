// Conversions of tensors on a GPU to inputs of core. On the CPU, OpKernels do them in place.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_DEVICE_INPUTS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_DEVICE_INPUTS_H_

#include <cstdint>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {

// One of several matrices in device memory: its address, and the number of rows before it.
struct ShardRows {
  uintptr_t address = 0;
  int64_t first = 0;
};

// Sets rows[u] to the address of row u of `shards` (host memory), whose rows are numbered in
// sequence. With a checked permutation [num_rows, 2] it is the address of row permutation[u, 1] of
// shard permutation[u, 0].
Status LocateRows(const GpuExec& exec, Span<const ShardRows> shards, int64_t row_bytes,
                  Span<const int32_t> permutation, Span<uintptr_t> rows);

// InvalidArgument names the first entry of a permutation [num_rows, 2] that is not a row of a
// shard, or that occurs a second time. Waits for the stream, because no address may be computed
// from a wrong entry. `shard_sizes` is host memory.
Status CheckPermutation(const GpuExec& exec, Span<const int64_t> shard_sizes,
                        Span<const int32_t> permutation);

// Sets `last` to the row of the last pair, or -1 without pairs. Waits for the stream, because it
// determines the size of an output. InvalidArgument names the first row that is negative or smaller
// than the one before.
Status LastRowOf(const GpuExec& exec, const RowIds& rows, int64_t* last);

// out[i] = rows[i].
Status CopyRowIds(const GpuExec& exec, const RowIds& rows, int64_t* out);
// out[i] = i.
Status Enumerate(const GpuExec& exec, Span<int32_t> out);
// out[i] = flags[i] != 0.
Status FlagsToBools(const GpuExec& exec, Span<const int32_t> flags, Span<bool> out);

// out[i] = values[i], converted to the type of computations C, float or double.
template <typename Value, typename C>
Status ConvertValues(const GpuExec& exec, Span<const Value> values, C* out);
// The reverse conversion: out[i] = values[i], rounded once.
template <typename C, typename Value>
Status StoreValues(const GpuExec& exec, Span<const C> values, Value* out);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_DEVICE_INPUTS_H_
