// Weights of any value type as numbers that are computed with, and back.

#ifndef FUSED_EMBEDDING_KERNELS_WEIGHT_VALUES_H_
#define FUSED_EMBEDDING_KERNELS_WEIGHT_VALUES_H_

#include <algorithm>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {

// Calls body(W()) for the element type W of a tensor of weights.
template <typename Body>
void VisitWeightType(tensorflow::DataType dtype, const Body& body) {
  if (dtype == tensorflow::DT_FLOAT) return body(float());
  if (dtype == tensorflow::DT_DOUBLE) return body(double());
  if (dtype == tensorflow::DT_HALF) return body(Eigen::half());
  return body(Eigen::bfloat16());
}

template <typename C>
void LoadWeights(const tensorflow::Tensor& weights, C* out) {
  VisitWeightType(weights.dtype(), [&](auto type) {
    const auto in = InputSpan<decltype(type)>(weights);
    std::transform(in.begin(), in.end(), out,
                   [](auto weight) { return static_cast<C>(Load(weight)); });
  });
}

template <typename C>
void StoreWeights(Span<const C> values, tensorflow::Tensor* out) {
  VisitWeightType(out->dtype(), [&](auto type) {
    const auto stored = OutputSpan<decltype(type)>(out);
    using Stored = CoreType<decltype(type)>;
    for (int64_t k = 0; k < stored.size; ++k) {
      Store(static_cast<ComputeType<Stored>>(values[k]), &stored[k]);
    }
  });
}

// The weights themselves where they are of type C, else a copy in `converted`.
template <typename C>
Status ReadWeights(const tensorflow::Tensor& weights, Buffer<C>* converted, Span<const C>* values) {
  if (weights.dtype() == tensorflow::DataTypeToEnum<C>::value) {
    *values = InputSpan<C>(weights);
    return Status();
  }
  FE_RETURN_IF_ERROR(converted->Allocate(weights.NumElements()));
  LoadWeights(weights, converted->data());
  *values = converted->span();
  return Status();
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_WEIGHT_VALUES_H_
