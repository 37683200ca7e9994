#include <cuda_runtime.h>

#include <atomic>
#include <limits>

#include "tf_ops/c_api/machine.h"
#include "tf_ops/core/base/cuda/device.h"
#include "tf_ops/core/base/cuda/launch.cu.h"

#ifdef FE_CUDA_EMULATION
namespace {
int64_t NumLaunches() { return cuda_emulation::NumLaunches(); }
int64_t NumWaits() { return cuda_emulation::NumWaits(); }
}  // namespace
#else
// The linker leads these calls here (--wrap in tf_ops/core/CMakeLists.txt), those of CUB included:
// what is counted is what really happens. A copy to the host waits; one for its end is no second.
namespace {
std::atomic<int64_t> num_launches{0}, num_waits{0};
std::atomic<bool> ends_with_copy_to_host{false};  // the stream
int64_t NumLaunches() { return num_launches; }
int64_t NumWaits() { return num_waits; }
void CountLaunch() {
  ++num_launches;
  ends_with_copy_to_host = false;
}
}  // namespace

extern "C" {
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** arguments) {
  CountLaunch();
  return __real_cudaLaunchKernelExC(config, kernel, arguments);
}

// What <<<>>> becomes, in CUDA 13 and before.
cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 num_blocks, dim3 num_threads,
                                      void** arguments, size_t shared_bytes, cudaStream_t stream) {
  CountLaunch();
  return __real___cudaLaunchKernel(kernel, num_blocks, num_threads, arguments, shared_bytes,
                                   stream);
}
cudaError_t __real_cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
cudaError_t __wrap_cudaLaunchKernel(const void* kernel, dim3 num_blocks, dim3 num_threads,
                                    void** arguments, size_t shared_bytes, cudaStream_t stream) {
  CountLaunch();
  return __real_cudaLaunchKernel(kernel, num_blocks, num_threads, arguments, shared_bytes, stream);
}

cudaError_t __real_cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  ends_with_copy_to_host = kind == cudaMemcpyDeviceToHost;
  num_waits += kind == cudaMemcpyDeviceToHost;
  return __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
}
cudaError_t __real_cudaStreamSynchronize(cudaStream_t);
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream) {
  num_waits += !ends_with_copy_to_host.exchange(false);
  return __real_cudaStreamSynchronize(stream);
}
}
#endif

namespace fused_embedding {
namespace {

// A stream, and memory from the driver's pool, which keeps what is given back to it.
class StreamExec final : public GpuExec {
 public:
  Status Open() {
    FE_RETURN_IF_ERROR(
        CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream"));
    num_multiprocessors_ = NumMultiprocessors();
    int device = 0;
    cudaMemPool_t pool = nullptr;
    FE_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "name the device"));
    FE_RETURN_IF_ERROR(
        CudaStatus(cudaDeviceGetDefaultMemPool(&pool, device), "find the pool of memory"));
    uint64_t kept_bytes = std::numeric_limits<uint64_t>::max();
    return CudaStatus(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes),
                      "keep memory in its pool");
  }
  ~StreamExec() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  CUstream_st* stream() const override { return stream_; }
  int num_multiprocessors() const override { return num_multiprocessors_; }
  void* Allocate(int64_t bytes) const override {
    ++num_allocations_;
    void* memory = nullptr;
    if (cudaMallocAsync(&memory, static_cast<size_t>(bytes), stream_) == cudaSuccess) {
      return memory;
    }
    cudaGetLastError();  // CUB would take it for its own
    return nullptr;
  }
  void Free(void* memory) const override { cudaFreeAsync(memory, stream_); }
  int64_t num_allocations() const { return num_allocations_; }

 private:
  cudaStream_t stream_ = nullptr;
  int num_multiprocessors_ = 1;
  mutable int64_t num_allocations_ = 0;
};

class GpuMachine final : public FeMachine {
 public:
  ~GpuMachine() override {
    cudaStreamSynchronize(exec_.stream());
    for (const cudaEvent_t mark : marks_) cudaEventDestroy(mark);
  }

  Status Open() {
    int num_devices = 0;
    if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
      return MakeStatus(StatusCode::kFailedPrecondition,
                        "there is no GPU here; open the CPU instead");
    }
    FE_RETURN_IF_ERROR(exec_.Open());
    launches_before_ = NumLaunches();
    waits_before_ = NumWaits();
    return Status();
  }

  const GpuExec* gpu() const override { return &exec_; }
  FeCounters counters() const override {
    return {NumLaunches() - launches_before_, NumWaits() - waits_before_, exec_.num_allocations()};
  }

  Status Allocate(int64_t bytes, void** memory) override {
    *memory = exec_.Allocate(std::max<int64_t>(bytes, 1));
    return *memory ? Status()
                   : ResourceExhausted("no device memory for ", bytes, " bytes; use less");
  }
  Status Free(void* memory) override {
    return CudaStatus(cudaFreeAsync(memory, exec_.stream()), "free device memory");
  }
  Status Copy(void* to, const void* from, int64_t bytes) const override {
    return CudaStatus(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, exec_.stream()),
        "copy");
  }
  Status Clear(void* memory, int64_t bytes) override {
    return Fill(exec_, 0, Span<char>{static_cast<char*>(memory), bytes});
  }
  Status Wait() override { return WaitForStream(exec_); }
  Status Mark(size_t number) override {
    while (marks_.size() <= number) {
      cudaEvent_t mark = nullptr;
      FE_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&mark), "make an event"));
      marks_.push_back(mark);
    }
    return CudaStatus(cudaEventRecord(marks_[number], exec_.stream()), "record an event");
  }
  Status MicrosBetween(size_t first, size_t last, double* micros) override {
    float millis = 0;
    FE_RETURN_IF_ERROR(
        CudaStatus(cudaEventElapsedTime(&millis, marks_[first], marks_[last]), "read an event"));
    *micros = static_cast<double>(millis) * 1e3;
    return Status();
  }

 private:
  StreamExec exec_;
  std::vector<cudaEvent_t> marks_;
  int64_t launches_before_ = 0, waits_before_ = 0;
};

}  // namespace

Status OpenGpu(std::unique_ptr<FeMachine>* machine) {
  auto gpu = std::make_unique<GpuMachine>();
  FE_RETURN_IF_ERROR(gpu->Open());
  *machine = std::move(gpu);
  return Status();
}

}  // namespace fused_embedding

int32_t FeIsEmulated() {
#ifdef FE_CUDA_EMULATION
  return 1;
#else
  return 0;
#endif
}

void FeShuffleOrder([[maybe_unused]] uint64_t seed) {
#ifdef FE_CUDA_EMULATION
  cuda_emulation::ShuffleOrder(seed);
#endif
}
