#include "tf_ops/kernels/post_lookup_kernel.h"

#include "tf_ops/kernels/cuda/gpu_pairs.h"

namespace fused_embedding {
namespace {

template <typename T>
class GpuPostLookup {
 public:
  explicit GpuPostLookup(tensorflow::OpKernelContext* ctx) : pairs_(ctx) {}
  const PairsInput<T>& in() const { return pairs_.in(); }

  Status LastRow(const RowIds& rows, int64_t* last) const {
    return LastRowOf(pairs_.exec(), rows, last);
  }

  Status Plan(const PostLookupAttrs& attrs, bool is_v2, int64_t num_rows) {
    FE_RETURN_IF_ERROR(pairs_.Read(attrs, is_v2, num_rows));
    return PlanPostLookup(pairs_.exec(), in().pairs, &plan_);
  }

  Status Run(Span<CoreType<T>> combined, Span<int32_t> num_ids) {
    return RunPostLookup(pairs_.exec(), in().pairs, plan_, combined, num_ids);
  }

 private:
  GpuPairs<T> pairs_;
  GpuPostLookupPlan<CoreType<T>> plan_;
};

#define FE_REGISTER(T) FE_REGISTER_POST_LOOKUP(tensorflow::DEVICE_GPU, GpuPostLookup, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
