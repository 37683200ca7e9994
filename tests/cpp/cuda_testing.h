// What the tests of core's CUDA code share. They run on a GPU, or on the emulation of
// tests/cuda_emulation.

#ifndef FUSED_EMBEDDING_TESTS_CPP_CUDA_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_CUDA_TESTING_H_

#include <cuda_runtime.h>

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/base/cuda/exec.h"

namespace fused_embedding {

#ifdef FE_CUDA_EMULATION
using cuda_emulation::FailNextCall;
using cuda_emulation::NumWaits;
using cuda_emulation::ShuffleOrder;
constexpr bool kIsEmulated = true;
#else
inline void ShuffleOrder(uint64_t) {}  // the hardware does
inline int64_t NumWaits() { return 0; }
constexpr bool kIsEmulated = false;
#endif

// Orders of threads and blocks; 0 is that of their indices. With few cases one that is shuffled.
inline Span<const uint64_t> OrderSeeds() {
  static constexpr uint64_t kOrderSeeds[] = {1, 2, 0};
  return {kOrderSeeds, HasFewCases() ? 1 : 3};
}

// Fails the test where a call of the CUDA runtime does.
inline void Cuda(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// A stream and memory that holds no zeros by chance. Two multiprocessors: loops over a grid go
// round in small tests too.
class TestGpu final : public GpuExec {
 public:
  CUstream_st* stream() const override { return nullptr; }
  int num_multiprocessors() const override { return 2; }
  void* Allocate(int64_t bytes) const override {
    constexpr int64_t kMaxBytes = int64_t{1} << 34;
    void* memory = nullptr;
    if (bytes > kMaxBytes) return nullptr;
    if (cudaMallocAsync(&memory, static_cast<size_t>(bytes), nullptr) != cudaSuccess)
      return nullptr;
    Cuda(cudaMemsetAsync(memory, 0xcd, static_cast<size_t>(bytes), nullptr));
    return memory;
  }
  void Free(void* memory) const override { Cuda(cudaFreeAsync(memory, nullptr)); }
};

// Tests of this fixture are skipped, and counted, where there is no GPU.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int num_devices = 0;
    if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
      GTEST_SKIP() << "there is no GPU here";
    }
    ShuffleOrder(0);
  }
  // What the test freed is only enqueued: its last one would leak.
  void TearDown() override { static_cast<void>(cudaStreamSynchronize(nullptr)); }

  TestGpu gpu;
};

// Device memory of exactly `size` elements.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t size = 0) : size_(size) {
    if (size > 0) Cuda(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()));
    if (size > 0) Cuda(cudaMemsetAsync(data_, 0xcd, bytes(), nullptr));
  }
  explicit DeviceArray(const Array<T>& host) : DeviceArray(host.size()) {
    if (size_ > 0) {
      Cuda(cudaMemcpyAsync(data_, host.span().data, bytes(), cudaMemcpyHostToDevice, nullptr));
      Cuda(cudaStreamSynchronize(nullptr));
    }
  }
  DeviceArray(DeviceArray&& other) noexcept : size_(other.size_), data_(other.data_) {
    other.size_ = 0;
    other.data_ = nullptr;
  }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceArray() {
    if (data_ != nullptr) Cuda(cudaFree(data_));
  }

  Array<T> ToHost() const {
    Array<T> host(size_);
    if (size_ > 0) {
      Cuda(cudaMemcpyAsync(host.data(), data_, bytes(), cudaMemcpyDeviceToHost, nullptr));
    }
    Cuda(cudaStreamSynchronize(nullptr));
    return host;
  }

  int64_t size() const { return size_; }
  T* data() const { return data_; }
  Span<T> span() const { return {data_, size_}; }
  Span<const T> view() const { return {data_, size_}; }

 private:
  size_t bytes() const { return static_cast<size_t>(size_) * sizeof(T); }

  int64_t size_ = 0;
  T* data_ = nullptr;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_CUDA_TESTING_H_
