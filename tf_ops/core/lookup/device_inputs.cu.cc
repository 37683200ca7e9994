#include "tf_ops/core/lookup/device_inputs.h"

#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {
namespace {

template <typename Value, typename C>
__global__ void ConvertKernel(Span<const Value> values, C* __restrict__ out) {
  for (int64_t i = ThreadOfGrid(); i < values.size; i += NumThreadsOfGrid()) {
    out[i] = static_cast<C>(Load(values[i]));
  }
}

}  // namespace

template <typename Value, typename C>
Status ConvertValues(const GpuExec& exec, Span<const Value> values, C* out) {
  return Launch(exec, values.size, ConvertKernel<Value, C>, values, out);
}

#define FE_INSTANTIATE(Value)                                               \
  template Status ConvertValues(const GpuExec&, Span<const Value>, float*); \
  template Status ConvertValues(const GpuExec&, Span<const Value>, double*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
