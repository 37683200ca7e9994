// What tensors on a GPU need before they are inputs of core: on the CPU, OpKernels do this in
// place.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_DEVICE_INPUTS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_DEVICE_INPUTS_H_

#include <cstdint>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// out[i] = values[i], as numbers that are computed with. C is float or double.
template <typename Value, typename C>
Status ConvertValues(const GpuExec& exec, Span<const Value> values, C* out);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_DEVICE_INPUTS_H_
