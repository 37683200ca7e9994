// What a gradient op of a grouped lookup has on a GPU.

#ifndef FUSED_EMBEDDING_KERNELS_CUDA_GPU_GROUP_LOOKUP_GRAD_H_
#define FUSED_EMBEDDING_KERNELS_CUDA_GPU_GROUP_LOOKUP_GRAD_H_

#include "tf_ops/kernels/cuda/gpu_group.h"
#include "tf_ops/kernels/group_lookup_grad_kernel.h"

namespace fused_embedding {

template <typename T>
class GpuGroupLookupGrad : public GpuGroup<T> {
 public:
  using GpuGroup<T>::GpuGroup;
  using V = CoreType<T>;

  Status Plan(const GroupGradInput<V>& in) { return PlanGroupLookupGrad(this->exec(), in, &plan_); }
  int64_t num_unique(int t) const { return plan_.tables[static_cast<size_t>(t)].num_unique; }
  Status Run(Span<const TableGrad<V>> grads) {
    return RunGroupLookupGrad<V>(this->exec(), plan_, grads);
  }

 private:
  GpuGroupGradPlan<V> plan_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_CUDA_GPU_GROUP_LOOKUP_GRAD_H_
