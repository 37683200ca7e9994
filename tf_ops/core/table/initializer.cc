#include "tf_ops/core/table/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/table/normal.h"

namespace fused_embedding {
namespace {

constexpr int64_t kDebugModulus = 100000;

int64_t FloorMod(int64_t a, int64_t b) {
  const int64_t remainder = a % b;
  return remainder < 0 ? remainder + b : remainder;
}

// The random bits of value d are SplitMix64's (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", 2014) with Mix64 as finaliser, started at a hash of (seed, key). They are
// fixed for ever: checkpoints keep the seed, not the values of rows to come.
constexpr uint64_t kGamma = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio

uint64_t SeedState(uint64_t seed) { return Mix64(seed ^ kGamma); }
FE_INLINE uint64_t RowState(uint64_t seed_state, int64_t key) {
  return Mix64(seed_state + static_cast<uint64_t>(key));
}
// In [0, 1), a multiple of 2^-52.
FE_INLINE double RandomUnit(uint64_t row_state, int64_t d) {
  const uint64_t bits = Mix64(row_state + static_cast<uint64_t>(d + 1) * kGamma);
  return BitCast<double>((bits >> 12) | (uint64_t{1023} << 52)) - 1.0;
}

// Values that may be drawn: `low` and `high` are values of T, with no rounding past them.
struct Range {
  double low;
  double high;
};

// The next T above (direction 1) or below (-1) `value`.
template <typename T>
double Neighbour(T value, int direction) {
  // Bits of a float, taken as sign and magnitude, are in the order of the values.
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(T) - 1));
  Bits bits = BitCast<Bits>(value);
  if (static_cast<Bits>(bits & ~kSign) == 0) {
    bits = direction > 0 ? Bits{1} : static_cast<Bits>(kSign | 1);
  } else {
    const bool grows = ((bits & kSign) == 0) == (direction > 0);
    bits = static_cast<Bits>(grows ? bits + 1 : bits - 1);
  }
  return double{Load(BitCast<T>(bits))};
}

template <typename T>
T RoundTo(double value) {
  T rounded;
  Store(static_cast<ComputeType<T>>(value), &rounded);
  return rounded;
}

// The values of T in [a, b). Where there is none: the one nearest to a.
template <typename T>
Range UniformRange(double a, double b) {
  const T low = RoundTo<T>(a);
  const T high = RoundTo<T>(b);
  Range range;
  range.low = double{Load(low)} < a ? Neighbour<T>(low, 1) : double{Load(low)};
  range.high = double{Load(high)} < b ? double{Load(high)} : Neighbour<T>(high, -1);
  if (range.low > range.high) range.low = range.high = double{Load(low)};
  return range;
}

// Standard normal quantiles of 0.5 + q[i], in place; |q[i]| < 0.5.
FE_INLINE void NormalQuantiles(double* q, int64_t n) {
  constexpr int64_t kMax = 16;
  double z[kMax];
  for (int64_t i = 0; i < n; ++i) z[i] = CentralNormalQuantile(q[i]);
  // One value in seven, in a loop of its own so that the one above is branch-free.
  for (int64_t i = 0; i < n; ++i) {
    if (std::abs(q[i]) <= kCentral) continue;
    const double tail = TailNormalQuantile(0.5 - std::abs(q[i]));
    z[i] = q[i] < 0 ? -tail : tail;
  }
  for (int64_t i = 0; i < n; ++i) q[i] = z[i];
}

template <typename T>
struct RowFiller {
  const InitializerConfig& config;
  int64_t dim;
  const int64_t* keys;
  char* const* values;
  int64_t n;

  FE_INLINE T* Row(int64_t i) const { return reinterpret_cast<T*>(values[i]); }

  // value(i) is the same for a whole row.
  template <typename Value>
  void Constant(const Value& value) const {
    for (int64_t i = 0; i < n; ++i) std::fill_n(Row(i), dim, RoundTo<T>(value(i)));
  }

  void Uniform() const {
    const Range range = UniformRange<T>(config.a, config.b);
    const uint64_t seed_state = SeedState(config.seed);
    WithSimd([&]() FE_INLINE_LAMBDA {
      const double a = config.a;
      const double width = config.b - config.a;
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t row_state = RowState(seed_state, keys[i]);
        T* row = Row(i);
        for (int64_t d = 0; d < dim; ++d) {
          double value = a + width * RandomUnit(row_state, d);
          value = value < range.low ? range.low : value;
          value = value > range.high ? range.high : value;
          Store(static_cast<ComputeType<T>>(value), &row[d]);
        }
      }
    });
  }

  // Normal values whose standard form lies in the quantiles of 0.5 +- half_mass.
  void Normal(double half_mass, double max_deviations) const {
    constexpr int64_t kBlock = 16;
    const uint64_t seed_state = SeedState(config.seed);
    WithSimd([&]() FE_INLINE_LAMBDA {
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t row_state = RowState(seed_state, keys[i]);
        T* row = Row(i);
        for (int64_t first = 0; first < dim; first += kBlock) {
          const int64_t width = dim - first < kBlock ? dim - first : kBlock;
          double z[kBlock];
          for (int64_t d = 0; d < width; ++d) {
            // Symmetric, and never 0 or 1: half a step of RandomUnit above its lowest value.
            const double u = RandomUnit(row_state, first + d) + 0x1p-53;
            z[d] = 2.0 * half_mass * (u - 0.5);
          }
          NormalQuantiles(z, width);
          for (int64_t d = 0; d < width; ++d) {
            double deviations = z[d] < -max_deviations ? -max_deviations : z[d];
            deviations = deviations > max_deviations ? max_deviations : deviations;
            const double value = config.a + config.b * deviations;
            Store(static_cast<ComputeType<T>>(value), &row[first + d]);
          }
        }
      }
    });
  }

  void Matrix() const {
    const int64_t row_bytes = dim * int64_t{sizeof(T)};
    const int64_t num_rows = static_cast<int64_t>(config.matrix.size()) / row_bytes;
    for (int64_t i = 0; i < n; ++i) {
      const char* source = config.matrix.data() + FloorMod(keys[i], num_rows) * row_bytes;
      std::memcpy(values[i], source, static_cast<size_t>(row_bytes));
    }
  }

  void Fill() const {
    constexpr double kTwoSigmaMass = 0.9544997361036416;  // of a normal distribution
    switch (config.kind) {
      case InitializerKind::kConstant:
        return Constant([&](int64_t) { return config.a; });
      case InitializerKind::kUniform:
        return Uniform();
      case InitializerKind::kNormal:
        return Normal(0.5, std::numeric_limits<double>::infinity());
      case InitializerKind::kTruncatedNormal:
        return Normal(kTwoSigmaMass / 2, 2.0);
      case InitializerKind::kDebug:
        return Constant(
            [&](int64_t i) { return static_cast<double>(FloorMod(keys[i], kDebugModulus)); });
      case InitializerKind::kMatrix:
        return Matrix();
    }
  }
};

template <typename T>
void Fill(const InitializerConfig& config, int64_t dim, const int64_t* keys, char* const* values,
          int64_t n) {
  RowFiller<T>{config, dim, keys, values, n}.Fill();
}

struct KindName {
  const char* name;
  InitializerKind kind;
};
constexpr KindName kKindNames[] = {{"constant", InitializerKind::kConstant},
                                   {"uniform", InitializerKind::kUniform},
                                   {"normal", InitializerKind::kNormal},
                                   {"truncated_normal", InitializerKind::kTruncatedNormal},
                                   {"debug", InitializerKind::kDebug},
                                   {"matrix", InitializerKind::kMatrix}};

Status CheckMatrix(int64_t bytes, int64_t row_bytes) {
  if (row_bytes > 0 && bytes > 0 && bytes % row_bytes == 0) return Status();
  return InvalidArgument("the matrix of an initializer must be [rows, dim] values of the table, ",
                         "at least one row of ", row_bytes, " bytes, got ", bytes,
                         " bytes; give values of the table's dim and dtype");
}

}  // namespace

Status ParseInitializerKind(const std::string& name, InitializerKind* kind) {
  for (const KindName& entry : kKindNames) {
    if (name != entry.name) continue;
    *kind = entry.kind;
    return Status();
  }
  return InvalidArgument(
      "initializer must be constant, uniform, normal, truncated_normal, debug or matrix, got ",
      name);
}

const char* InitializerKindName(InitializerKind kind) {
  for (const KindName& entry : kKindNames) {
    if (kind == entry.kind) return entry.name;
  }
  return "unknown";
}

Status CheckInitializer(const InitializerConfig& config, const RowLayout& layout) {
  const double a = config.a, b = config.b;
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return InvalidArgument("the numbers of an initializer must be finite, got ", a, " and ", b);
  }
  switch (config.kind) {
    case InitializerKind::kConstant:
    case InitializerKind::kDebug:
      return Status();
    case InitializerKind::kUniform:
      if (a <= b && std::isfinite(b - a)) return Status();
      return InvalidArgument("a uniform initializer is of [a, b) with a <= b, got a = ", a,
                             ", b = ", b);
    case InitializerKind::kNormal:
    case InitializerKind::kTruncatedNormal:
      if (b >= 0) return Status();
      return InvalidArgument("the standard deviation of a normal initializer must be >= 0, got ",
                             b);
    case InitializerKind::kMatrix:
      return CheckMatrix(static_cast<int64_t>(config.matrix.size()), layout.value_bytes());
  }
  return Status();
}

void Initialize(const InitializerConfig& config, const RowLayout& layout, const int64_t* keys,
                char* const* values, int64_t n) {
  switch (layout.value_type) {
    case ValueType::kFloat:
      return Fill<float>(config, layout.dim, keys, values, n);
    case ValueType::kDouble:
      return Fill<double>(config, layout.dim, keys, values, n);
    case ValueType::kHalf:
      return Fill<Half>(config, layout.dim, keys, values, n);
    case ValueType::kBFloat16:
      return Fill<BFloat16>(config, layout.dim, keys, values, n);
  }
}

}  // namespace fused_embedding
