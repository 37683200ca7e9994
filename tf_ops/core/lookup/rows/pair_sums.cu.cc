#include "tf_ops/core/lookup/rows/pair_sums_kernels.cu.h"

namespace fused_embedding {

template <typename T>
Status SumPairs(const GpuExec& exec, const SortedPairs<T>& sorted,
                const std::vector<SumTable<T>>& tables) {
  return SumPairsInto(exec, sorted, tables);
}

#define FE_INSTANTIATE(T) \
  template Status SumPairs(const GpuExec&, const SortedPairs<T>&, const std::vector<SumTable<T>>&);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
