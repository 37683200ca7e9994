// What an op of a grouped lookup has on a GPU.

#ifndef FUSED_EMBEDDING_KERNELS_CUDA_GPU_GROUP_H_
#define FUSED_EMBEDDING_KERNELS_CUDA_GPU_GROUP_H_

#include <vector>

#include "tf_ops/kernels/cuda/gpu_weights.h"
#include "tf_ops/kernels/cuda/tf_gpu_exec.h"
#include "tf_ops/kernels/group_input.h"

namespace fused_embedding {

// As CpuGroup.
template <typename T>
class GpuGroup {
 public:
  explicit GpuGroup(tensorflow::OpKernelContext* ctx) : work_(ctx) {}
  const GpuExec& exec() const { return work_.exec(); }
  WeightReader<T> weight_reader() {
    return [this](const tensorflow::Tensor& weights, auto* values) {
      converted_.emplace_back();
      return ReadGpuWeights(exec(), weights, &converted_.back(), values);
    };
  }

 private:
  GpuWork work_;
  std::vector<DeviceBuffer<ComputeType<CoreType<T>>>> converted_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_CUDA_GPU_GROUP_H_
