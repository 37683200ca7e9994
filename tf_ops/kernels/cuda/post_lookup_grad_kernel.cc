#include "tf_ops/kernels/post_lookup_grad_kernel.h"

#include "tf_ops/kernels/cuda/gpu_pairs.h"

namespace fused_embedding {
namespace {

template <typename T>
class GpuPostLookupGrad {
 public:
  using V = CoreType<T>;

  explicit GpuPostLookupGrad(tensorflow::OpKernelContext* ctx) : pairs_(ctx) {}
  const PairsInput<T>& in() const { return pairs_.in(); }

  Status Plan(const PostLookupAttrs& attrs, bool is_v2, int64_t num_rows,
              Span<const int32_t> num_ids) {
    FE_RETURN_IF_ERROR(pairs_.Read(attrs, is_v2, num_rows));
    return PlanPostLookupGrad(pairs_.exec(), in().pairs, num_ids, &plan_);
  }

  Status Run(Span<const V> top_grad, const std::vector<V*>& shards) {
    DeviceBuffer<V*> rows_grad;
    FE_RETURN_IF_ERROR(pairs_.Locate(shards, &rows_grad));
    return RunPostLookupGrad(pairs_.exec(), in().pairs, plan_, top_grad,
                             {rows_grad.data(), rows_grad.size()});
  }

 private:
  GpuPairs<T> pairs_;
  GpuPostLookupGradPlan<V> plan_;
};

#define FE_REGISTER(T) FE_REGISTER_POST_LOOKUP_GRAD(tensorflow::DEVICE_GPU, GpuPostLookupGrad, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
