#include "tf_ops/kernels/group_lookup_grad_kernel.h"

#include "tf_ops/kernels/cuda/gpu_group.h"

namespace fused_embedding {
namespace {

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

#define FE_REGISTER(T) FE_REGISTER_GROUP_LOOKUP_GRAD(tensorflow::DEVICE_GPU, GpuGroupLookupGrad, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
