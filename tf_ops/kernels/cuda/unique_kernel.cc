#include "tf_ops/kernels/unique_kernel.h"

#include "tf_ops/kernels/cuda/tf_gpu_exec.h"

namespace fused_embedding {
namespace {

template <typename Id, typename Index>
class GpuUnique {
 public:
  explicit GpuUnique(tensorflow::OpKernelContext* ctx) : exec_(ctx) {}

  Status Plan(Span<const Id> ids, Span<Index>, int64_t* num_unique) {
    FE_RETURN_IF_ERROR((PlanUnique<Id, Index>(exec_, ids, &plan_)));
    *num_unique = plan_.num_unique;
    return Status();
  }

  Status Run(Span<const Id> ids, Span<Index> unique_idx, Span<Id> unique_ids, Span<Index> counts) {
    return RunUnique<Id, Index>(exec_, ids, plan_, {unique_idx, unique_ids, counts});
  }

 private:
  TfGpuExec exec_;
  GpuUniquePlan plan_;
};

#define FE_REGISTER(Id, Index) FE_REGISTER_UNIQUE(tensorflow::DEVICE_GPU, GpuUnique, Id, Index)
FE_REGISTER(int32_t, int32_t)
FE_REGISTER(int32_t, int64_t)
FE_REGISTER(int64_t, int32_t)
FE_REGISTER(int64_t, int64_t)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
