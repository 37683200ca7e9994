// What kernels share: indices, which threads work together on a row, and 16 bytes of it.

#ifndef FUSED_EMBEDDING_CORE_BASE_CUDA_KERNEL_CU_H_
#define FUSED_EMBEDDING_CORE_BASE_CUDA_KERNEL_CU_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/span.h"

namespace fused_embedding {

__device__ inline int64_t ThreadOfGrid() {
  return int64_t{blockIdx.x} * int64_t{blockDim.x} + threadIdx.x;
}
__device__ inline int64_t NumThreadsOfGrid() { return int64_t{gridDim.x} * int64_t{blockDim.x}; }

// True below `size` only: a negative index is a huge unsigned one.
__device__ inline bool IsIndex(int64_t index, int64_t size) {
  return static_cast<uint64_t>(index) < static_cast<uint64_t>(size);
}

// The first of the positions that threads find something at, whatever order they run in.
class FirstPosition {
 public:
  bool is_found() const { return position_ != kNone; }
  FE_HOST_DEVICE int64_t position() const { return static_cast<int64_t>(position_); }

  __device__ void Add(int64_t position) {
    atomicMin(&position_, static_cast<unsigned long long>(position));
  }

 private:
  static constexpr unsigned long long kNone = ~0ull;
  unsigned long long position_ = kNone;  // atomicMin has no signed 64 bits
};

// Of items in a row, whose ends ascend, the number of that with `position`; end_of(i) is the end of
// item i. A position behind all of them is the last one's.
template <typename EndOf>
__device__ inline int64_t ItemOfPosition(int64_t num_items, int64_t position, const EndOf& end_of) {
  int64_t low = 0, high = num_items - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (end_of(middle) <= position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Of several items that share a grid, in the order of their blocks, that of this block.
template <typename Item, typename Base>
__device__ inline const Item& ItemOfBlock(const Item* items, int64_t num_items,
                                          Range Base::* blocks) {
  return items[ItemOfPosition(num_items, blockIdx.x,
                              [&](int64_t i) { return (items[i].*blocks).end; })];
}

// Of several lists that share a grid, each block has so many items of one.
constexpr int64_t kItemsPerBlock = 1024;

// Calls body(i) for the items of a list of `size`, which has these blocks, that this thread has.
template <typename Body>
__device__ void ForEachItem(const Range& blocks, int64_t size, const Body& body) {
  const int64_t begin = (int64_t{blockIdx.x} - blocks.begin) * kItemsPerBlock;
  const int64_t last = begin + kItemsPerBlock;
  const int64_t end = last < size ? last : size;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) body(i);
}

// Neighbouring threads of a warp that work on one row: a power of two up to 32. Small rows leave
// room for several of these in a warp, each with loads of its own in flight.
struct Lanes {
  int size, lane;

  __device__ explicit Lanes(int size)
      : size(size), lane(static_cast<int>(threadIdx.x) & (size - 1)) {}

  // Which of such groups this is in its block, and how many those are.
  __device__ int64_t group() const { return static_cast<int>(threadIdx.x) / size; }
  __device__ int64_t num_groups() const { return static_cast<int>(blockDim.x) / size; }
  // Which it is in its grid, or in these blocks of it, and how many there are in the grid.
  __device__ int64_t GroupOfGrid() const { return GroupOf({0, gridDim.x}); }
  __device__ int64_t GroupOf(const Range& blocks) const {
    return (int64_t{blockIdx.x} - blocks.begin) * num_groups() + group();
  }
  __device__ int64_t NumGroupsOfGrid() const { return gridDim.x * num_groups(); }

  // In the warp.
  __device__ uint32_t mask() const {
    return (size == warpSize ? ~0u : (1u << size) - 1) << first_of_warp();
  }
  __device__ int first_of_warp() const { return static_cast<int>(threadIdx.x) % warpSize - lane; }

  // What one lane did to memory before, the others see after.
  __device__ void Sync() const { __syncwarp(mask()); }

  // Bit i: what lane i passes.
  __device__ uint32_t Ballot(bool predicate) const {
    const uint32_t bits = __ballot_sync(mask(), predicate);
    return (bits & mask()) >> first_of_warp();
  }
  // What that lane passes.
  template <typename V>
  __device__ V ValueOf(int lane_of_value, V value) const {
    return __shfl_sync(mask(), value, first_of_warp() + lane_of_value);
  }

  // The sum over the lanes, in the same order of additions on each of them.
  template <typename C>
  __device__ C Sum(C value) const {
    for (int other = size / 2; other > 0; other /= 2) {
      value += __shfl_xor_sync(mask(), value, other);
    }
    return value;
  }
};

// The lanes for rows of so many vectors. Host code, as below.
inline int NumLanes(int64_t vectors_per_row) {
  int lanes = 1;
  while (lanes < 32 && lanes < vectors_per_row) lanes *= 2;
  return lanes;
}

// kWidth values of a row, which one thread loads at once: 16 or 8 bytes, or a single value.
template <typename T, int kWidth>
struct RowVector {
  static constexpr int kBytes = int{sizeof(T)} * kWidth;
  using Vector = std::conditional_t<kBytes == 16, uint4, uint2>;
  using Raw = std::conditional_t<kWidth == 1, T, Vector>;
  static_assert(sizeof(Raw) == sizeof(T) * kWidth);

  Raw raw;

  __device__ static RowVector LoadFrom(const T* row) {
    return {*reinterpret_cast<const Raw*>(row)};
  }
  __device__ void CopyTo(T* row) const { *reinterpret_cast<Raw*>(row) = raw; }
  __device__ static RowVector Of(const T (&values)[kWidth]) {
    RowVector vector;
    memcpy(&vector.raw, values, sizeof(raw));
    return vector;
  }
  __device__ void Unpack(T (&values)[kWidth]) const { memcpy(values, &raw, sizeof(raw)); }
  __device__ void AddTo(ComputeType<T> factor, ComputeType<T>* sums) const {
    T values[kWidth];
    Unpack(values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] += factor * Load(values[i]);
  }
  // scale * sums, rounded once.
  __device__ static void StoreTo(ComputeType<T> scale, const ComputeType<T>* sums, T* row) {
    T values[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) Store(scale * sums[i], &values[i]);
    Of(values).CopyTo(row);
  }
};

// As many values of T as 16 bytes hold.
template <typename T>
constexpr int kFullWidth = 16 / int{sizeof(T)};

template <typename T>
int NumLanes(int64_t dim, bool is_full_width) {
  return NumLanes(is_full_width ? dim / kFullWidth<T> : dim);
}

// Rows can be moved by 16 bytes: `address_bits` is the bitwise or of what they start at.
template <typename T>
FE_INLINE bool HasFullWidth(int64_t dim, uint64_t address_bits) {
  return dim % kFullWidth<T> == 0 && address_bits % 16 == 0;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_BASE_CUDA_KERNEL_CU_H_
