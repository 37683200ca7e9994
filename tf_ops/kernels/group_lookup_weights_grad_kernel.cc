#include "tf_ops/kernels/group_lookup_weights_grad_kernel.h"

#include "tf_ops/kernels/weight_values.h"

namespace fused_embedding {
namespace {

template <typename T>
class CpuGroupLookupWeightsGrad : public CpuGroup<T> {
 public:
  using CpuGroup<T>::CpuGroup;
  using V = CoreType<T>;

  Status Run(Span<const GroupColumn<V>> columns, Span<const CombinedGrad<V>> grads,
             const std::vector<WeightsOutput>& outputs) {
    using C = ComputeType<V>;
    std::vector<PairOrder> orders;
    FE_RETURN_IF_ERROR(CheckColumns(this->exec(), columns, &orders));
    for (const WeightsOutput& output : outputs) {
      const int64_t c = static_cast<int64_t>(output.column);
      Buffer<C> values;
      FE_RETURN_IF_ERROR(values.Allocate(columns[c].num_pairs()));
      FE_RETURN_IF_ERROR(GroupLookupWeightsGrad(this->exec(), columns[c], grads[c], values.span()));
      StoreWeights<C>(values.span(), output.tensor);
    }
    return Status();
  }
};

#define FE_REGISTER(T) \
  FE_REGISTER_GROUP_LOOKUP_WEIGHTS_GRAD(tensorflow::DEVICE_CPU, CpuGroupLookupWeightsGrad, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
