#include "tf_ops/kernels/group_lookup_grad_kernel.h"

namespace fused_embedding {
namespace {

template <typename T>
class CpuGroupLookupGrad : public CpuGroup<T> {
 public:
  using CpuGroup<T>::CpuGroup;
  using V = CoreType<T>;

  Status Plan(const GroupGradInput<V>& in) { return PlanGroupLookupGrad(this->exec(), in, &plan_); }
  int64_t num_unique(int t) const { return plan_.tables[static_cast<size_t>(t)].unique.num_unique; }
  Status Run(Span<const TableGrad<V>> grads) {
    RunGroupLookupGrad<V>(this->exec(), &plan_, grads);
    return Status();
  }

 private:
  GroupGradPlan<V> plan_;
};

#define FE_REGISTER(T)                                                         \
  FE_REGISTER_GROUP_LOOKUP_GRAD(tensorflow::DEVICE_CPU, CpuGroupLookupGrad, T) \
  REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableGroupLookupGrad")             \
                              .Device(tensorflow::DEVICE_CPU)                  \
                              .TypeConstraint<T>("T"),                         \
                          TableGroupLookupGradOp<CpuGroupLookupGrad<T>, T>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
