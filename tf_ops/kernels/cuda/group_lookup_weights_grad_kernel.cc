#include "tf_ops/kernels/group_lookup_weights_grad_kernel.h"

#include "tf_ops/kernels/cuda/gpu_group.h"

namespace fused_embedding {
namespace {

template <typename T>
class GpuGroupLookupWeightsGrad : public GpuGroup<T> {
 public:
  using GpuGroup<T>::GpuGroup;
  using V = CoreType<T>;

  Status Run(Span<const GroupColumn<V>> columns, Span<const CombinedGrad<V>> grads,
             const std::vector<WeightsOutput>& outputs) {
    using C = ComputeType<V>;
    // Where weights are of type C, that is the output.
    std::vector<DeviceBuffer<C>> values(outputs.size());
    std::vector<C*> of_column(static_cast<size_t>(columns.size), nullptr);
    for (size_t i = 0; i < outputs.size(); ++i) {
      FE_RETURN_IF_ERROR(WeightsToWrite(this->exec(), outputs[i].tensor, &values[i],
                                        &of_column[outputs[i].column]));
    }
    FE_RETURN_IF_ERROR(
        GroupLookupWeightsGrad<V>(this->exec(), columns, grads, {of_column.data(), columns.size}));
    for (size_t i = 0; i < outputs.size(); ++i) {
      FE_RETURN_IF_ERROR(StoreGpuWeights<C>(this->exec(), values[i].span(), outputs[i].tensor));
    }
    return Status();
  }
};

#define FE_REGISTER(T) \
  FE_REGISTER_GROUP_LOOKUP_WEIGHTS_GRAD(tensorflow::DEVICE_GPU, GpuGroupLookupWeightsGrad, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
