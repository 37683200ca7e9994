#ifndef FUSED_EMBEDDING_CORE_BASE_CUDA_EXEC_H_
#define FUSED_EMBEDDING_CORE_BASE_CUDA_EXEC_H_

#include <cstdint>

struct CUstream_st;  // what a cudaStream_t points to

namespace fused_embedding {

// Where core gets a GPU from. All work of a call is enqueued on one stream: a Run function returns
// before it is done, a Plan function waits once, for the sizes and errors that only the data tells.
//
// Spans that a function with a GpuExec takes are device memory, unless it says otherwise.
class GpuExec {
 public:
  virtual ~GpuExec() = default;
  virtual CUstream_st* stream() const = 0;
  virtual int num_multiprocessors() const = 0;
  // Device memory for what is enqueued between this call and Free, aligned to 256 bytes. Null where
  // there is none.
  virtual void* Allocate(int64_t bytes) const = 0;
  // What was enqueued before may still use the memory.
  virtual void Free(void* memory) const = 0;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_CUDA_EXEC_H_
