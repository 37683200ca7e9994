#ifndef FUSED_EMBEDDING_CORE_BASE_CUDA_DEVICE_BUFFER_H_
#define FUSED_EMBEDDING_CORE_BASE_CUDA_DEVICE_BUFFER_H_

#include <cstdint>
#include <limits>
#include <memory>

#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Owns uninitialised device memory, which is given back in the order of the stream. The GpuExec
// must live as long.
template <typename T>
class DeviceBuffer {
 public:
  Status Allocate(const GpuExec& exec, int64_t size) {
    span_ = {};
    memory_.reset();
    if (size == 0) return Status();
    constexpr int64_t kMaxSize = std::numeric_limits<int64_t>::max() / int64_t{sizeof(T)};
    // A negative size is one that overflowed.
    const bool is_possible = size > 0 && size <= kMaxSize;
    void* memory = is_possible ? exec.Allocate(size * int64_t{sizeof(T)}) : nullptr;
    if (memory == nullptr) {
      return ResourceExhausted("cannot allocate device memory for ", size, " elements of ",
                               sizeof(T), " bytes; use a smaller batch");
    }
    memory_ = {memory, Free{&exec}};
    span_ = {static_cast<T*>(memory), size};
    return Status();
  }

  Span<T> span() const { return span_; }
  T* data() const { return span_.data; }
  int64_t size() const { return span_.size; }

 private:
  struct Free {
    const GpuExec* exec = nullptr;
    void operator()(void* memory) const { exec->Free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  Span<T> span_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_CUDA_DEVICE_BUFFER_H_
