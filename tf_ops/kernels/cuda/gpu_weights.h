// Weights of any value type as numbers that are computed with, on a GPU.

#ifndef FUSED_EMBEDDING_KERNELS_CUDA_GPU_WEIGHTS_H_
#define FUSED_EMBEDDING_KERNELS_CUDA_GPU_WEIGHTS_H_

#include "tf_ops/core/lookup/device_inputs.h"
#include "tf_ops/kernels/weight_values.h"

namespace fused_embedding {

template <typename C>
Status ConvertGpuWeights(const GpuExec& exec, const tensorflow::Tensor& weights, C* out) {
  Status status;
  VisitWeightType(weights.dtype(), [&](auto type) {
    status = ConvertValues(exec, InputSpan<decltype(type)>(weights), out);
  });
  return status;
}

// As ReadWeights.
template <typename C>
Status ReadGpuWeights(const GpuExec& exec, const tensorflow::Tensor& weights,
                      DeviceBuffer<C>* converted, Span<const C>* values) {
  if (weights.dtype() == tensorflow::DataTypeToEnum<C>::value) {
    *values = InputSpan<C>(weights);
    return Status();
  }
  FE_RETURN_IF_ERROR(converted->Allocate(exec, weights.NumElements()));
  *values = converted->span();
  return ConvertGpuWeights(exec, weights, converted->data());
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_CUDA_GPU_WEIGHTS_H_
