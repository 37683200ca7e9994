#include "tf_ops/core/base/cuda/device.h"

#include <cuda_runtime.h>

namespace fused_embedding {

int NumMultiprocessors() {
  int device = 0, num_multiprocessors = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, device) !=
          cudaSuccess) {
    return 1;
  }
  return num_multiprocessors;
}

}  // namespace fused_embedding
