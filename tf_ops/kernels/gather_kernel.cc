#include "tf_ops/kernels/gather_kernel.h"

namespace fused_embedding {
namespace {

FE_REGISTER_GATHER(tensorflow::DEVICE_CPU, TfExec, int32_t)
FE_REGISTER_GATHER(tensorflow::DEVICE_CPU, TfExec, int64_t)

}  // namespace
}  // namespace fused_embedding
