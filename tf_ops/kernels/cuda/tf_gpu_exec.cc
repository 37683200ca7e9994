#include "tf_ops/kernels/cuda/tf_gpu_exec.h"

#include "tensorflow/core/framework/device_base.h"
#include "tf_ops/core/base/cuda/device.h"
#include "xla/stream_executor/stream.h"

namespace fused_embedding {

TfGpuExec::TfGpuExec(tensorflow::OpKernelContext* ctx)
    : stream_(static_cast<CUstream_st*>(
          ctx->op_device_context()->stream()->platform_specific_handle().stream)),
      allocator_(ctx->get_allocator({})),
      num_multiprocessors_(NumMultiprocessors()) {}

void* TfGpuExec::Allocate(int64_t bytes) const {
  constexpr size_t kAlignment = 256;
  return allocator_->AllocateRaw(kAlignment, static_cast<size_t>(bytes));
}

void TfGpuExec::Free(void* memory) const { allocator_->DeallocateRaw(memory); }

}  // namespace fused_embedding
