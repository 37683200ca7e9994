#include "tf_ops/core/base/dtype.h"

#include "tests/cpp/core_testing.h"
#include "tests/cpp/simd_levels.h"
#include "tf_ops/core/base/vectors.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fused_embedding {
namespace {

// As TensorFlow's threads run: subnormal results and operands of float arithmetic count as zero.
class FlushSubnormals {
 public:
#if defined(__x86_64__)
  explicit FlushSubnormals(bool is_on) : saved_(_mm_getcsr()) {
    constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
    if (is_on) _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
  }
  ~FlushSubnormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  explicit FlushSubnormals(bool /*is_on*/) {}
#endif
};

// Not inlined, so that the conversions happen between the changes of the control register. Each
// runs at every instruction set of this CPU, which must agree.
template <typename Body>
__attribute__((noinline)) void RunFlushed(bool is_on, const Body& body) {
  const FlushSubnormals flush(is_on);
  body();
}

template <typename T>
std::vector<uint32_t> LoadAll(const std::vector<T>& values, bool flush) {
  std::vector<uint32_t> bits(values.size());
  RunFlushed(flush, [&] {
    WithSimd([&]() FE_INLINE_LAMBDA {
      for (size_t i = 0; i < values.size(); ++i) bits[i] = BitCast<uint32_t>(Load(values[i]));
    });
  });
  return bits;
}

template <typename T>
std::vector<uint16_t> StoreAll(const std::vector<uint32_t>& float_bits, bool flush) {
  std::vector<T> stored(float_bits.size());
  RunFlushed(flush, [&] {
    WithSimd([&]() FE_INLINE_LAMBDA {
      for (size_t i = 0; i < stored.size(); ++i) Store(BitCast<float>(float_bits[i]), &stored[i]);
    });
  });
  std::vector<uint16_t> bits;
  for (const T value : stored) bits.push_back(value.bits);
  return bits;
}

template <typename T>
std::vector<T> AllValues() {
  std::vector<T> values;
  for (uint32_t bits = 0; bits < 65536; ++bits) values.push_back(T{static_cast<uint16_t>(bits)});
  return values;
}

// The definitions: sign, exponent, fraction.
double Value(Half value) {
  const int exponent = (value.bits >> 10) & 31;
  const int fraction = value.bits & 1023;
  const double sign = (value.bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

double Value(BFloat16 value) {
  const int exponent = (value.bits >> 7) & 255;
  const int fraction = value.bits & 127;
  const double sign = (value.bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 255) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -133);
  return sign * std::ldexp(128 + fraction, exponent - 134);
}

template <typename T>
bool IsNan(uint16_t bits) {
  return std::isnan(Value(T{bits}));
}

// Bits of the largest finite number; the next is infinity.
template <typename T>
constexpr uint16_t kMaxFinite = std::is_same_v<T, Half> ? 0x7bff : 0x7f7f;

// The nearest of all numbers of T, of two the one with the even last bit. A binary search.
template <typename T>
uint16_t SlowRound(float value) {
  if (std::isnan(value)) return 0x7fff;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(double{value});
  uint16_t low = 0;
  uint16_t high = kMaxFinite<T> + 1;  // infinity
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (Value(T{middle}) <= magnitude ? low : high) = middle;
  }
  // Past the largest number, rounding knows the one that would follow it.
  const double below = Value(T{low});
  const double above =
      high <= kMaxFinite<T> ? Value(T{high}) : 2 * below - Value(T{static_cast<uint16_t>(low - 1)});
  const double middle = (below + above) / 2;  // exact in double
  const bool goes_up = magnitude > middle || (magnitude == middle && (low & 1) != 0);
  return sign | (goes_up ? high : low);
}

// Every number of T and the middles between them, each with its neighbours in float, and specials.
template <typename T>
std::vector<uint32_t> InterestingFloats() {
  std::vector<float> floats = {0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 0x1p-126f, 0x1.fffffep127f};
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  floats.push_back(kInfinity);
  floats.push_back(-kInfinity);
  for (uint16_t bits = 0; bits < kMaxFinite<T>; ++bits) {
    const double value = Value(T{bits});
    const double middle = (value + Value(T{static_cast<uint16_t>(bits + 1)})) / 2;
    for (const float centre : {static_cast<float>(value), static_cast<float>(middle)}) {
      for (const float x :
           {centre, std::nextafter(centre, kInfinity), std::nextafter(centre, 0.0f)}) {
        floats.push_back(x);
        floats.push_back(-x);
      }
    }
  }
  std::vector<uint32_t> float_bits = {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0x7fbfffffu,
                                      0xff800001u};
  for (const float value : floats) float_bits.push_back(BitCast<uint32_t>(value));
  Random random(3);
  for (int i = 0; i < 200000; ++i) float_bits.push_back(static_cast<uint32_t>(random()));
  return float_bits;
}

template <typename T>
class SixteenBits : public ::testing::Test {};
using SixteenBitTypes = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(SixteenBits, SixteenBitTypes);

TYPED_TEST(SixteenBits, AllValuesLoadExactly) {
  const std::vector<TypeParam> values = AllValues<TypeParam>();
  for (const bool flush : {false, true}) {
    const std::vector<uint32_t> loaded = LoadAll(values, flush);
    for (size_t i = 0; i < values.size(); ++i) {
      const double want = Value(values[i]);
      const float got = BitCast<float>(loaded[i]);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << std::hex << i << " flush " << flush;
      } else {
        ASSERT_EQ(loaded[i], BitCast<uint32_t>(static_cast<float>(want)))
            << std::hex << i << " flush " << flush;
      }
    }
  }
}

TYPED_TEST(SixteenBits, AllValuesRoundTrip) {
  const std::vector<TypeParam> values = AllValues<TypeParam>();
  for (const bool flush : {false, true}) {
    const std::vector<uint16_t> stored = StoreAll<TypeParam>(LoadAll(values, flush), flush);
    for (size_t i = 0; i < values.size(); ++i) {
      if (IsNan<TypeParam>(values[i].bits)) {
        ASSERT_TRUE(IsNan<TypeParam>(stored[i])) << std::hex << i << " flush " << flush;
        ASSERT_EQ(stored[i] & 0x8000, values[i].bits & 0x8000) << std::hex << i;
      } else {
        ASSERT_EQ(stored[i], values[i].bits) << std::hex << i << " flush " << flush;
      }
    }
  }
}

TYPED_TEST(SixteenBits, RoundsToNearestEven) {
  const std::vector<uint32_t> floats = InterestingFloats<TypeParam>();
  std::vector<uint16_t> want;
  for (const uint32_t bits : floats) want.push_back(SlowRound<TypeParam>(BitCast<float>(bits)));
  for (const bool flush : {false, true}) {
    const std::vector<uint16_t> got = StoreAll<TypeParam>(floats, flush);
    for (size_t i = 0; i < floats.size(); ++i) {
      const float value = BitCast<float>(floats[i]);
      if (std::isnan(value)) {
        ASSERT_TRUE(IsNan<TypeParam>(got[i])) << std::hex << floats[i] << " flush " << flush;
      } else {
        ASSERT_EQ(got[i], want[i]) << value << " flush " << flush;
      }
    }
  }
}

// Every bit, also of what is not a number; 1 to 16 values at a time.
TYPED_TEST(SixteenBits, VectorsAreConvertedAsValuesAre) {
  const std::vector<TypeParam> values = AllValues<TypeParam>();
  const std::vector<uint32_t> floats = InterestingFloats<TypeParam>();
  const int64_t num_values = static_cast<int64_t>(values.size());
  const int64_t num_floats = static_cast<int64_t>(floats.size());
  for (const bool flush : {false, true}) {
    const std::vector<uint32_t> want_loaded = LoadAll(values, flush);
    const std::vector<uint16_t> want_stored = StoreAll<TypeParam>(floats, flush);
    RunFlushed(flush, [&] {
      ForEachSimdLevel([&](auto vector_bytes) FE_INLINE_LAMBDA {
        constexpr int64_t kLanes = vector_bytes() / int64_t{sizeof(float)};
        for (const int64_t first : {0, 1, 5}) {  // ends of every length
          std::vector<float> loaded(values.size());
          ForEachVector<kLanes>(first, num_values, [&](auto lanes, int64_t i) FE_INLINE_LAMBDA {
            LoadValues<vector_bytes(), lanes()>(&values[i], &loaded[i]);
          });
          EXPECT_EQ(std::memcmp(&loaded[first], &want_loaded[first], 4 * (num_values - first)), 0);
          std::vector<TypeParam> stored(floats.size());
          ForEachVector<kLanes>(first, num_floats, [&](auto lanes, int64_t i) FE_INLINE_LAMBDA {
            float row[lanes()];
            std::memcpy(row, &floats[i], sizeof(row));
            StoreValues<vector_bytes(), lanes()>(row, &stored[i]);
          });
          EXPECT_EQ(std::memcmp(&stored[first], &want_stored[first], 2 * (num_floats - first)), 0);
        }
      });
    });
  }
}

TEST(Half, RoundsItsLimits) {
  const auto store = [](float value) {
    Half half;
    Store(value, &half);
    return half.bits;
  };
  EXPECT_EQ(store(65504.0f), 0x7bff);
  EXPECT_EQ(store(65519.996f), 0x7bff);
  EXPECT_EQ(store(65520.0f), 0x7c00);  // the middle to 2^16: infinity
  EXPECT_EQ(store(-65520.0f), 0xfc00);
  EXPECT_EQ(store(0x1p-24f), 0x0001);
  EXPECT_EQ(store(0x1p-25f), 0x0000);  // the middle to 0: even
  EXPECT_EQ(store(0x1.000002p-25f), 0x0001);
  EXPECT_EQ(store(0x1.ffcp-15f), 0x0400);  // the middle to the smallest normal number
  EXPECT_EQ(store(-0.0f), 0x8000);
}

TEST(FloatAndDouble, AreStoredAsTheyAre) {
  float f;
  Store(1.5f, &f);
  EXPECT_EQ(Load(f), 1.5f);
  double d;
  Store(0x1.0000000000001p0, &d);
  EXPECT_EQ(Load(d), 0x1.0000000000001p0);
  static_assert(std::is_same_v<ComputeType<Half>, float> &&
                std::is_same_v<ComputeType<BFloat16>, float>);
  static_assert(std::is_same_v<ComputeType<float>, float> &&
                std::is_same_v<ComputeType<double>, double>);
}

}  // namespace
}  // namespace fused_embedding
