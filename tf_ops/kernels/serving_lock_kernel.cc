#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_encode_decode.h"
#include "tensorflow/core/framework/variant_tensor_data.h"
#include "tf_ops/core/table/serving_change.h"
#include "tf_ops/core/table/serving_lock.h"
#include "tf_ops/kernels/table_resource.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Variant;

// A lock that is held until Release, or until this is destroyed.
class HeldLock {
 public:
  explicit HeldLock(std::shared_ptr<ServingLock> lock) : lock_(std::move(lock)) {}
  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;
  ~HeldLock() { Release(); }

  void Release() {
    if (!is_released_.exchange(true)) lock_->Release(LockMode::kShared);
  }

 private:
  const std::shared_ptr<ServingLock> lock_;
  std::atomic<bool> is_released_{false};
};

// What a tensor holds. Copies of a tensor share the lock.
struct SharedHold {
  std::shared_ptr<HeldLock> held;

  std::string TypeName() const { return "fused_embedding::SharedHold"; }
  std::string DebugString() const { return TypeName(); }
  // A lock is of one process.
  void Encode(tensorflow::VariantTensorData* /*data*/) const {}
  bool Decode(const tensorflow::VariantTensorData& /*data*/) { return false; }
};

class LockOp : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;
  void ComputeAsync(OpKernelContext* ctx, DoneCallback done) override {
    TableResourcePtr resource;
    OP_REQUIRES_OK_ASYNC(ctx, FindTable(ctx, ctx->input(0), TableState::kAny, &resource), done);
    // What can fail comes before the lock is held.
    Tensor* output = nullptr;
    OP_REQUIRES_OK_ASYNC(ctx, ctx->allocate_output(0, {}, &output), done);
    const std::shared_ptr<ServingLock> lock = resource->serving_lock();
    WaitForServingLock(ctx, lock, LockMode::kShared, [=](const absl::Status& status) {
      OP_REQUIRES_OK_ASYNC(ctx, status, done);
      SharedHold hold{std::make_shared<HeldLock>(lock)};
      FE_REQUIRES_OK_ASYNC(ctx, CheckNotTorn(*lock), done);
      output->scalar<Variant>()() = std::move(hold);
      done();
    });
  }
};

class UnlockOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* ctx) override {
    const Tensor& lock = ctx->input(0);
    const SharedHold* hold =
        lock.dims() == 0 ? lock.scalar<Variant>()().get<SharedHold>() : nullptr;
    OP_REQUIRES(ctx, hold != nullptr,
                absl::InvalidArgumentError(
                    absl::StrCat("lock must be the scalar that EmbeddingVariableServingLock gave, "
                                 "got ",
                                 lock.DebugString())));
    hold->held->Release();
  }
};

REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableServingLock").Device(tensorflow::DEVICE_CPU),
                        LockOp);
REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableServingUnlock").Device(tensorflow::DEVICE_CPU),
                        UnlockOp);

}  // namespace
}  // namespace fused_embedding
