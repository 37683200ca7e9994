#include "tf_ops/kernels/cuda/gpu_group_lookup_grad.h"

namespace fused_embedding {
namespace {

#define FE_REGISTER(T) FE_REGISTER_GROUP_LOOKUP_GRAD(tensorflow::DEVICE_GPU, GpuGroupLookupGrad, T)
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
