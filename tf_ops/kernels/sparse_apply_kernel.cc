#include "tf_ops/kernels/sparse_apply_kernel.h"

#include <cstring>

namespace fused_embedding {
namespace {

class CpuSparseApply {
 public:
  explicit CpuSparseApply(tensorflow::OpKernelContext* ctx) : exec_(ctx) {}

  Status Apply(const SparseApplyInput& in) {
    SparseApplyPlan plan;
    FE_RETURN_IF_ERROR(PlanSparseApply(exec_, in, &plan));
    RunSparseApply(exec_, in, &plan);
    return Status();
  }
  Status Copy(const tensorflow::Tensor& from, tensorflow::Tensor* to) {
    std::memcpy(to->data(), from.data(), from.TotalBytes());
    return Status();
  }

 private:
  TfExec exec_;
};

// Of reference variables.
class RefSparseApplyOp final : public SparseApplyOp<CpuSparseApply> {
 public:
  explicit RefSparseApplyOp(tensorflow::OpKernelConstruction* ctx)
      : SparseApplyOp<CpuSparseApply>(ctx) {
    use_locking_ = GetAttr<bool>(ctx, "use_locking");
  }

 private:
  void ComputeOn(tensorflow::OpKernelContext* ctx, const SparseApplyInputs& in) override {
    std::vector<Mutex*> mutexes;
    for (int i = in.variables.start; i < in.slots.stop; ++i) {
      mutexes.push_back(ctx->input_ref_mutex(i));
    }
    Locks locks;
    FE_REQUIRES_OK(ctx, locks.Take(std::move(mutexes), use_locking_));
    std::vector<tensorflow::Tensor> held;
    for (int i = in.variables.start; i < in.slots.stop; ++i) {
      held.push_back(ctx->mutable_input(i, use_locking_));
    }
    std::vector<tensorflow::Tensor*> tensors;
    for (tensorflow::Tensor& tensor : held) tensors.push_back(&tensor);
    Update(ctx, in, tensors);
  }

  bool use_locking_ = false;
};

REGISTER_KERNEL_BUILDER(Name("FusedEmbeddingSparseApply").Device(tensorflow::DEVICE_CPU),
                        RefSparseApplyOp);
FE_REGISTER_RESOURCE_SPARSE_APPLY(tensorflow::DEVICE_CPU, CpuSparseApply)

}  // namespace
}  // namespace fused_embedding
