#include "tf_ops/kernels/unique_kernel.h"

namespace fused_embedding {
namespace {

template <typename Id, typename Index>
class CpuUnique {
 public:
  explicit CpuUnique(tensorflow::OpKernelContext* ctx) : exec_(ctx) {}

  Status Plan(Span<const Id> ids, Span<Index> unique_idx, int64_t* num_unique) {
    FE_RETURN_IF_ERROR(PlanUnique(exec_, ids, unique_idx, &plan_));
    *num_unique = plan_.num_unique;
    return Status();
  }

  Status Run(Span<const Id>, Span<Index> unique_idx, Span<Id> unique_ids, Span<Index> counts) {
    RunUnique<Id, Index>(plan_, unique_idx, unique_ids, counts);
    return Status();
  }

 private:
  TfExec exec_;
  UniquePlan<Id> plan_;
};

#define FE_REGISTER(Id, Index) FE_REGISTER_UNIQUE(tensorflow::DEVICE_CPU, CpuUnique, Id, Index)
FE_REGISTER(int32_t, int32_t)
FE_REGISTER(int32_t, int64_t)
FE_REGISTER(int64_t, int32_t)
FE_REGISTER(int64_t, int64_t)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
