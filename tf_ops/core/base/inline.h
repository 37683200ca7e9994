#ifndef FUSED_EMBEDDING_CORE_BASE_INLINE_H_
#define FUSED_EMBEDDING_CORE_BASE_INLINE_H_

// Functions of the host that kernels call too.
#ifdef __CUDACC__
#define FE_HOST_DEVICE __host__ __device__
#else
#define FE_HOST_DEVICE
#endif

// Always inlined: takes on the instruction set of the function it lands in; see simd.h. Where there
// is one instruction set alone, the compiler chooses, which compiles in half the time.
#if defined(FE_NATIVE_SIMD)
#define FE_INLINE FE_HOST_DEVICE inline
#define FE_INLINE_LAMBDA
#else
#define FE_INLINE FE_HOST_DEVICE inline __attribute__((always_inline))
#define FE_INLINE_LAMBDA __attribute__((always_inline))
#endif

#endif  // FUSED_EMBEDDING_CORE_BASE_INLINE_H_
