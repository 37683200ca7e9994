#include "tf_ops/kernels/post_lookup_grad_kernel.h"

namespace fused_embedding {
namespace {

template <typename T>
class CpuPostLookupGrad {
 public:
  explicit CpuPostLookupGrad(tensorflow::OpKernelContext* ctx) : ctx_(ctx), exec_(ctx) {}
  const PairsInput<T>& in() const { return in_; }

  Status Plan(const PostLookupAttrs& attrs, bool is_v2, int64_t num_rows,
              Span<const int32_t> num_ids) {
    FE_RETURN_IF_ERROR(is_v2 ? ReadPairsV2(ctx_, attrs, num_rows, &in_)
                             : ReadPairsV1(ctx_, attrs, num_rows, &in_));
    return PlanPostLookupGrad(in_.pairs, num_ids, &plan_);
  }

  Status Run(Span<const CoreType<T>> top_grad, const std::vector<CoreType<T>*>& shards) {
    Buffer<CoreType<T>*> rows_grad;
    FE_RETURN_IF_ERROR(LocateGradRows(in_, shards, &rows_grad));
    RunPostLookupGrad(exec_, in_.pairs, plan_, top_grad, {rows_grad.data(), rows_grad.size()});
    return Status();
  }

 private:
  tensorflow::OpKernelContext* ctx_;
  TfExec exec_;
  PairsInput<T> in_;
  PostLookupGradPlan<CoreType<T>> plan_;
};

#define FE_REGISTER(T) FE_REGISTER_POST_LOOKUP_GRAD(tensorflow::DEVICE_CPU, CpuPostLookupGrad, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
