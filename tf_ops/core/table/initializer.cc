#include "tf_ops/core/table/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tf_ops/core/base/simd.h"
#include "tf_ops/core/table/first_value.h"

namespace fused_embedding {
namespace {

// Standard normal quantiles of 0.5 + q[i], in place; |q[i]| < 0.5.
FE_INLINE void NormalQuantiles(double* q, int64_t n) {
  constexpr int64_t kMax = 16;
  double z[kMax];
  for (int64_t i = 0; i < n; ++i) z[i] = CentralNormalQuantile(q[i]);
  // One value in seven, in a loop of its own so that the one above is branch-free.
  for (int64_t i = 0; i < n; ++i) {
    if (std::abs(q[i]) <= kCentral) continue;
    z[i] = OuterNormalQuantile(q[i]);
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
    const ValueRange range = UniformRange<T>(config.a, config.b);
    const uint64_t seed_state = SeedState(config.seed);
    WithSimd([&]() FE_INLINE_LAMBDA {
      const double a = config.a;
      const double width = config.b - config.a;
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t row_state = RowState(seed_state, keys[i]);
        T* row = Row(i);
        for (int64_t d = 0; d < dim; ++d) {
          const double value = Clamped(a + width * RandomUnit(row_state, d), range.low, range.high);
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
            z[d] = QuantileArgument(RandomUnit(row_state, first + d), half_mass);
          }
          NormalQuantiles(z, width);
          for (int64_t d = 0; d < width; ++d) {
            const double value =
                config.a + config.b * Clamped(z[d], -max_deviations, max_deviations);
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
