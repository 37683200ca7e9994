// What a kernel's grid depends on.

#ifndef FUSED_EMBEDDING_CORE_BASE_CUDA_DEVICE_H_
#define FUSED_EMBEDDING_CORE_BASE_CUDA_DEVICE_H_

namespace fused_embedding {

// Of the calling thread's device. 1 where CUDA cannot tell: what is launched next says why.
int NumMultiprocessors();

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_CUDA_DEVICE_H_
