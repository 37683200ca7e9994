// The GPU that an op runs on, for core.

#ifndef FUSED_EMBEDDING_KERNELS_CUDA_TF_GPU_EXEC_H_
#define FUSED_EMBEDDING_KERNELS_CUDA_TF_GPU_EXEC_H_

#include <cstdint>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/base/cuda/exec.h"

namespace fused_embedding {

// TensorFlow's stream for kernels, and its allocator. Memory that is freed may be handed out again
// at once: whoever gets it works on the same stream, later.
class TfGpuExec final : public GpuExec {
 public:
  explicit TfGpuExec(tensorflow::OpKernelContext* ctx);
  CUstream_st* stream() const override { return stream_; }
  int num_multiprocessors() const override { return num_multiprocessors_; }
  void* Allocate(int64_t bytes) const override;
  void Free(void* memory) const override;

 private:
  CUstream_st* stream_;
  tensorflow::Allocator* allocator_;
  int num_multiprocessors_;
};

// The device of an op, for as long as the op works on it. The emulation has an implementation of
// its own: tests/cuda_emulation/tf_gpu_exec.cc.
class GpuWork {
 public:
  explicit GpuWork(tensorflow::OpKernelContext* ctx);
  ~GpuWork();
  GpuWork(const GpuWork&) = delete;
  GpuWork& operator=(const GpuWork&) = delete;

  // Lives as long as the process: a table's memory outlives the op that allocates it.
  const GpuExec& exec() const { return exec_; }

 private:
  const GpuExec& exec_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_CUDA_TF_GPU_EXEC_H_
