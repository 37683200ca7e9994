#include "tf_ops/kernels/post_lookup_weights_grad_kernel.h"

#include "tf_ops/kernels/weight_values.h"

namespace fused_embedding {
namespace {

template <typename T>
class CpuPostLookupWeightsGrad {
 public:
  using V = CoreType<T>;

  explicit CpuPostLookupWeightsGrad(tensorflow::OpKernelContext* ctx) : ctx_(ctx), exec_(ctx) {}
  const PairsInput<T>& in() const { return in_; }

  Status Plan(const PostLookupAttrs& attrs, bool is_v2, int64_t num_rows) {
    FE_RETURN_IF_ERROR(is_v2 ? ReadPairsV2(ctx_, attrs, num_rows, &in_)
                             : ReadPairsV1(ctx_, attrs, num_rows, &in_));
    return PlanPostLookup(exec_, in_.pairs, &plan_);
  }

  Status Run(const CombinedGrad<V>& top_grad, const std::vector<tensorflow::Tensor*>& outputs) {
    using C = ComputeType<V>;
    Buffer<C> values;
    FE_RETURN_IF_ERROR(values.Allocate(in_.pairs.num_pairs()));
    RunPostLookupWeightsGrad(exec_, in_.pairs, plan_, top_grad, values.span());
    const C* next = values.data();
    for (tensorflow::Tensor* output : outputs) {
      StoreWeights<C>({next, output->NumElements()}, output);
      next += output->NumElements();
    }
    return Status();
  }

 private:
  tensorflow::OpKernelContext* ctx_;
  TfExec exec_;
  PairsInput<T> in_;
  PostLookupPlan<V> plan_;
};

#define FE_REGISTER(T) \
  FE_REGISTER_POST_LOOKUP_WEIGHTS_GRAD(tensorflow::DEVICE_CPU, CpuPostLookupWeightsGrad, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
