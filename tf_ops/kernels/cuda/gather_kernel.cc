#include "tf_ops/kernels/gather_kernel.h"

#include "tf_ops/kernels/cuda/tf_gpu_exec.h"

namespace fused_embedding {
namespace {

FE_REGISTER_GATHER(tensorflow::DEVICE_GPU, TfGpuExec, int32_t)
FE_REGISTER_GATHER(tensorflow::DEVICE_GPU, TfGpuExec, int64_t)

}  // namespace
}  // namespace fused_embedding
