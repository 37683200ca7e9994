#include "tf_ops/core/lookup/rows/pairs.h"

#include <limits>
#include <utility>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {
namespace {

template <typename T>
__global__ void RowKeysKernel(Pairs<T> pairs, uint32_t* __restrict__ keys) {
  for (int64_t k = ThreadOfGrid(); k < pairs.num_pairs(); k += NumThreadsOfGrid()) {
    keys[k] = static_cast<uint32_t>(pairs.Exists(k) ? pairs.row_ids[k] : pairs.num_rows);
  }
}

}  // namespace

Status ReadId(const GpuExec& exec, const IdSpan& ids, int64_t position, int64_t* id) {
  if (!ids.is_int32) return ReadValue(exec, static_cast<const int64_t*>(ids.data) + position, id);
  int32_t narrow = 0;
  FE_RETURN_IF_ERROR(ReadValue(exec, static_cast<const int32_t*>(ids.data) + position, &narrow));
  *id = narrow;
  return Status();
}

Status GroupByKey(const GpuExec& exec, Span<const uint32_t> keys, int64_t num_groups,
                  bool are_sorted, GpuPairGroups* groups) {
  FE_RETURN_IF_ERROR(groups->splits.Allocate(exec, num_groups + 1));
  if (are_sorted) return SplitByKey(exec, keys, groups->splits.span());
  SortedKeys sorted;
  FE_RETURN_IF_ERROR(SortByKey(exec, keys, num_groups + 1, &sorted));
  FE_RETURN_IF_ERROR(SplitByKey(exec, sorted.keys.span(), groups->splits.span()));
  groups->order = std::move(sorted.order);
  return Status();
}

template <typename T>
Status GroupByRow(const GpuExec& exec, const Pairs<T>& pairs, GpuPairGroups* groups) {
  if (pairs.num_rows >= int64_t{std::numeric_limits<uint32_t>::max()}) {
    return ResourceExhausted("cannot group ids into ", pairs.num_rows,
                             " rows; use a smaller batch");
  }
  DeviceBuffer<uint32_t> keys;
  FE_RETURN_IF_ERROR(keys.Allocate(exec, pairs.num_pairs()));
  FE_RETURN_IF_ERROR(Launch(exec, pairs.num_pairs(), RowKeysKernel<T>, pairs, keys.data()));
  return GroupByKey(exec, keys.span(), pairs.num_rows, /*are_sorted=*/false, groups);
}

#define FE_INSTANTIATE(T) \
  template Status GroupByRow(const GpuExec&, const Pairs<T>&, GpuPairGroups*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
