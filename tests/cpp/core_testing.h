// What the tests of core share: arrays that become spans, an executor that cuts ranges at random,
// and comparisons of bits and of rounded values.

#ifndef FUSED_EMBEDDING_TESTS_CPP_CORE_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_CORE_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

// Defined where a sanitizer is linked in.
extern "C" __attribute__((weak)) void __asan_init();
extern "C" __attribute__((weak)) void __tsan_init();

namespace fused_embedding {

using Random = std::mt19937_64;

constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

// In [low, high].
inline int64_t RandomInt(Random* random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(*random);
}

// The inverse of Mix64: ids with any hash that one likes.
inline uint64_t InverseMix64(uint64_t x) {
  // The multipliers' inverses modulo 2^64; x ^= x >> 33 is its own inverse.
  x ^= x >> 33;
  x *= 0x9cb4b2f8129337dbULL;
  x ^= x >> 33;
  x *= 0x4f74430c22a54005ULL;
  x ^= x >> 33;
  return x;
}

inline bool RandomBool(Random* random, double probability = 0.5) {
  return std::bernoulli_distribution(probability)(*random);
}

// Memory of exactly `size` elements, so that a sanitizer sees every access past its end. Not
// std::vector: its bool is not a bool.
template <typename T>
class Array {
 public:
  explicit Array(int64_t size = 0, T value = T{})
      : size_(size), data_(std::make_unique<T[]>(static_cast<size_t>(size))) {
    std::fill_n(data_.get(), size, value);
  }
  Array(std::initializer_list<T> values) : Array(static_cast<int64_t>(values.size())) {
    std::copy(values.begin(), values.end(), data_.get());
  }
  template <typename Container>
  static Array Of(const Container& values) {
    Array array(static_cast<int64_t>(values.size()));
    std::copy(values.begin(), values.end(), array.data_.get());
    return array;
  }

  int64_t size() const { return size_; }
  T* data() { return data_.get(); }
  T& operator[](int64_t i) { return data_[static_cast<size_t>(i)]; }
  const T& operator[](int64_t i) const { return data_[static_cast<size_t>(i)]; }
  Span<T> span() { return {data_.get(), size_}; }
  Span<const T> span() const { return {data_.get(), size_}; }
  Span<const T> view() const { return span(); }
  std::vector<T> values() const { return std::vector<T>(data_.get(), data_.get() + size_); }
  // The bytes, to compare results bit by bit: NaN equals itself, and 0 is not -0.
  std::string bytes() const {
    return {reinterpret_cast<const char*>(data_.get()), static_cast<size_t>(size_) * sizeof(T)};
  }

 private:
  int64_t size_;
  std::unique_ptr<T[]> data_;
};

template <typename T>
Array<double> AsDouble(const Array<T>& array) {
  Array<double> wide(array.size());
  for (int64_t i = 0; i < array.size(); ++i) wide[i] = static_cast<double>(Load(array[i]));
  return wide;
}

inline Array<char> RandomBytes(Random* random, int64_t size) {
  Array<char> bytes(size);
  for (int64_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((*random)());
  return bytes;
}

// Runs each body on several threads, over ranges that are cut elsewhere in every call.
class ThreadedExec final : public CpuExec {
 public:
  explicit ThreadedExec(int num_threads) : num_threads_(num_threads), random_(num_threads) {}

  int num_threads() const override { return num_threads_; }

  void ParallelFor(int64_t total, int64_t /*unit_ns*/, const Body& body) const override {
    if (total <= 0) return;
    const std::vector<int64_t> cuts = RandomCuts(total);
    std::atomic<size_t> next{1};
    const auto work = [&] {
      for (size_t i = next++; i < cuts.size(); i = next++) body(cuts[i - 1], cuts[i]);
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < num_threads_; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<int64_t> RandomCuts(int64_t total) const {
    std::set<int64_t> cuts = {0, total};
    for (int i = 0; i < 3 * num_threads_; ++i) cuts.insert(RandomInt(&random_, 0, total));
    return {cuts.begin(), cuts.end()};
  }

  int num_threads_;
  mutable Random random_;
};

constexpr int kThreadCounts[] = {1, 2, 3, 7};

// Whether the program is linked with the address or the thread sanitizer. The tests themselves are
// compiled without.
inline bool IsAddressSanitized() { return __asan_init != nullptr; }
inline bool IsSanitized() { return IsAddressSanitized() || __tsan_init != nullptr; }

// Sanitizers look at what is read and written, and are ten times slower. An emulated CPU is slower
// still, and tools/qemu.sh sets FE_FEW_CASES. Fewer cases run there; another run has compared the
// results of all.
inline bool HasFewCases() {
  static const bool has_few_cases = IsSanitized() || std::getenv("FE_FEW_CASES") != nullptr;
  return has_few_cases;
}

// How many of `number` random cases to try: all of them, or a quarter.
inline int NumCases(int number) { return HasFewCases() ? (number + 3) / 4 : number; }

template <typename T>
struct ValueTraits;
template <>
struct ValueTraits<float> {
  static constexpr double kEpsilon = 0x1p-23, kMinSubnormal = 0x1p-149;
};
template <>
struct ValueTraits<double> {
  static constexpr double kEpsilon = 0x1p-52, kMinSubnormal = 0x1p-1074;
};
template <>
struct ValueTraits<Half> {
  static constexpr double kEpsilon = 0x1p-10, kMinSubnormal = 0x1p-24;
};
template <>
struct ValueTraits<BFloat16> {
  static constexpr double kEpsilon = 0x1p-7, kMinSubnormal = 0x1p-133;
};

using ValueTypes = ::testing::Types<float, double, Half, BFloat16>;

// The T nearest to `value`.
template <typename T>
T Rounded(double value) {
  T rounded;
  Store(static_cast<ComputeType<T>>(value), &rounded);
  return rounded;
}

// `got` is `want` computed with some tens of roundings of numbers up to `magnitude`, and rounded
// to T at the end.
template <typename T>
::testing::AssertionResult IsClose(T got_value, double want, double magnitude) {
  constexpr double kRoundings = 64;
  const double got = Load(got_value);
  if (std::isnan(want) || std::isinf(want)) {
    if (std::isnan(want) ? std::isnan(got) : got == want) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "got " << got << ", want " << want;
  }
  const double tolerance = kRoundings * ValueTraits<ComputeType<T>>::kEpsilon * magnitude +
                           0.51 * ValueTraits<T>::kEpsilon * std::abs(want) +
                           ValueTraits<T>::kMinSubnormal;
  if (std::abs(got - want) <= tolerance) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "got " << got << ", want " << want << ", tolerance " << tolerance;
}

inline ::testing::AssertionResult IsOk(const Status& status) {
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.message();
}

// A failure of this kind whose message says all of `parts`.
inline ::testing::AssertionResult Fails(const Status& status, StatusCode code,
                                        std::initializer_list<const char*> parts) {
  if (status.code() != code) {
    return ::testing::AssertionFailure()
           << "code " << static_cast<int>(status.code()) << ", message: " << status.message();
  }
  for (const char* part : parts) {
    if (status.message().find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << '"' << part << "\" is not in: " << status.message();
    }
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult IsInvalid(const Status& status,
                                            std::initializer_list<const char*> parts) {
  return Fails(status, StatusCode::kInvalidArgument, parts);
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_CORE_TESTING_H_
