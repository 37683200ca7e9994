#include "tf_ops/kernels/cuda/tf_gpu_exec.h"

#include <map>
#include <memory>
#include <mutex>

#include "tensorflow/core/framework/device_base.h"
#include "tf_ops/core/base/cuda/device.h"
#include "xla/stream_executor/stream.h"

namespace fused_embedding {
namespace {

// By stream: a session has devices of its own, and TensorFlow has one stream for all of a GPU's.
const GpuExec& ExecOfProcess(const TfGpuExec& of_op) {
  static auto* const mutex = new std::mutex;
  static auto* const execs = new std::map<CUstream_st*, std::unique_ptr<TfGpuExec>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<TfGpuExec>& exec = (*execs)[of_op.stream()];
  if (exec == nullptr) exec = std::make_unique<TfGpuExec>(of_op);
  return *exec;
}

}  // namespace

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

GpuWork::GpuWork(tensorflow::OpKernelContext* ctx) : exec_(ExecOfProcess(TfGpuExec(ctx))) {}
GpuWork::~GpuWork() = default;

}  // namespace fused_embedding
