#include "tf_ops/kernels/group_lookup_kernel.h"

namespace fused_embedding {
namespace {

template <typename T>
class CpuGroupLookup : public CpuGroup<T> {
 public:
  using CpuGroup<T>::CpuGroup;
  using V = CoreType<T>;

  Status Plan(Span<const GroupColumn<V>> columns) {
    return PlanGroupLookup(this->exec(), columns, &plan_);
  }

  Status Run(Span<const GroupColumn<V>> columns, Span<const CombinedOut<V>> combined) {
    return RunGroupLookup(this->exec(), columns, plan_, combined);
  }

 private:
  GroupPlan<V> plan_;
};

#define FE_REGISTER(T) FE_REGISTER_GROUP_LOOKUP(tensorflow::DEVICE_CPU, CpuGroupLookup, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
