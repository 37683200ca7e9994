// The keys of a call in those of its tables that count keys before they get a row.

#ifndef FUSED_EMBEDDING_CORE_TABLE_GPU_COUNT_KEYS_CU_H_
#define FUSED_EMBEDDING_CORE_TABLE_GPU_COUNT_KEYS_CU_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/table/gpu/gpu_table.h"

namespace fused_embedding {

// Keys [begin, end) of a call are those of table number `table`, and come again from `first` on.
struct CountedKeys {
  int64_t table, begin, end, first;
};

// Of the tables that count, each after the one before it; the first begins at `first`.
std::vector<CountedKeys> FindCountedKeys(const GpuTableKeys& in, int64_t first);
int64_t EndOf(const std::vector<CountedKeys>& counted, int64_t first);

// Copies what `from` [n] has of them to `to` + their `first`. Both are in device memory.
template <typename T>
Status CopyCounted(const GpuExec& exec, const std::vector<CountedKeys>& counted, const T* from,
                   T* to);

// Erases the counts of the keys. Does not wait.
Status EraseCounts(const GpuExec& exec, const GpuTableKeys& in);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_GPU_COUNT_KEYS_CU_H_
