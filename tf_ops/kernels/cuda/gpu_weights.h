// Weights of any value type as numbers that are computed with, on a GPU.

#ifndef FUSED_EMBEDDING_KERNELS_CUDA_GPU_WEIGHTS_H_
#define FUSED_EMBEDDING_KERNELS_CUDA_GPU_WEIGHTS_H_

#include "tf_ops/core/lookup/rows/device_inputs.h"
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

// Where to write values that StoreGpuWeights then turns into weights: into `out` where it is of
// their type, else into `values`, which is made for them.
template <typename C>
Status WeightsToWrite(const GpuExec& exec, tensorflow::Tensor* out, DeviceBuffer<C>* values,
                      C** write_to) {
  if (out->dtype() == tensorflow::DataTypeToEnum<C>::value) {
    *write_to = OutputSpan<C>(out).data;
    return Status();
  }
  FE_RETURN_IF_ERROR(values->Allocate(exec, out->NumElements()));
  *write_to = values->data();
  return Status();
}

// As StoreWeights.
template <typename C>
Status StoreGpuWeights(const GpuExec& exec, Span<const C> values, tensorflow::Tensor* out) {
  Status status;
  VisitWeightType(out->dtype(), [&](auto type) {
    status = StoreValues(exec, values, OutputSpan<decltype(type)>(out).data);
  });
  return status;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_CUDA_GPU_WEIGHTS_H_
