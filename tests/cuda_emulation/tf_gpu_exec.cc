// The kernels for GPUs of TensorFlow ops, on the emulation: memory of the emulated device, whose
// one stream belongs to one op at a time and is done when the op ends.

#include "tf_ops/kernels/cuda/tf_gpu_exec.h"

#include <cuda_runtime.h>

#include <mutex>

namespace fused_embedding {
namespace {

// An op may take it several times, and a table's memory is freed where no op is.
std::recursive_mutex& StreamMutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

const GpuExec& ExecOfProcess(tensorflow::OpKernelContext* ctx) {
  static const auto* const exec = new TfGpuExec(ctx);
  return *exec;
}

}  // namespace

TfGpuExec::TfGpuExec(tensorflow::OpKernelContext* /*ctx*/)
    : stream_(nullptr), allocator_(nullptr), num_multiprocessors_(2) {}

void* TfGpuExec::Allocate(int64_t bytes) const {
  void* memory = nullptr;
  const bool is_made = cudaMallocAsync(&memory, static_cast<size_t>(bytes), nullptr) == cudaSuccess;
  return is_made ? memory : nullptr;
}

void TfGpuExec::Free(void* memory) const {
  const std::lock_guard<std::recursive_mutex> lock(StreamMutex());
  cudaFreeAsync(memory, nullptr);
}

GpuWork::GpuWork(tensorflow::OpKernelContext* ctx) : exec_(ExecOfProcess(ctx)) {
  StreamMutex().lock();
}

GpuWork::~GpuWork() {
  cudaStreamSynchronize(nullptr);
  StreamMutex().unlock();
}

}  // namespace fused_embedding
