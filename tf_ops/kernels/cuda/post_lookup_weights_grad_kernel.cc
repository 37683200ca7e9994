#include "tf_ops/kernels/post_lookup_weights_grad_kernel.h"

#include "tf_ops/kernels/cuda/gpu_pairs.h"

namespace fused_embedding {
namespace {

template <typename T>
class GpuPostLookupWeightsGrad {
 public:
  using V = CoreType<T>;

  explicit GpuPostLookupWeightsGrad(tensorflow::OpKernelContext* ctx) : pairs_(ctx) {}
  const PairsInput<T>& in() const { return pairs_.in(); }

  Status Plan(const PostLookupAttrs& attrs, bool is_v2, int64_t num_rows) {
    FE_RETURN_IF_ERROR(pairs_.Read(attrs, is_v2, num_rows));
    return PlanPostLookup(pairs_.exec(), in().pairs, &plan_);
  }

  Status Run(const CombinedGrad<V>& top_grad, const std::vector<tensorflow::Tensor*>& outputs) {
    using C = ComputeType<V>;
    DeviceBuffer<C> values;
    FE_RETURN_IF_ERROR(values.Allocate(pairs_.exec(), in().pairs.num_pairs()));
    FE_RETURN_IF_ERROR(
        RunPostLookupWeightsGrad(pairs_.exec(), in().pairs, plan_, top_grad, values.span()));
    const C* next = values.data();
    for (tensorflow::Tensor* output : outputs) {
      FE_RETURN_IF_ERROR(StoreGpuWeights<C>(pairs_.exec(), {next, output->NumElements()}, output));
      next += output->NumElements();
    }
    return Status();
  }

 private:
  GpuPairs<T> pairs_;
  GpuPostLookupPlan<V> plan_;
};

#define FE_REGISTER(T) \
  FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD(tensorflow::DEVICE_GPU, GpuPostLookupWeightsGrad, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
