#include "tf_ops/core/table/initializer.h"

#include "tests/cpp/core_testing.h"
#include "tf_ops/core/table/normal.h"

namespace fused_embedding {
namespace {

template <typename T>
RowLayout LayoutOf(int64_t dim) {
  RowLayout layout;
  layout.value_type = kValueTypeOf<T>;
  layout.dim = dim;
  return layout;
}

InitializerConfig Config(InitializerKind kind, double a = 0, double b = 0, uint64_t seed = 0) {
  InitializerConfig config;
  config.kind = kind;
  config.a = a;
  config.b = b;
  config.seed = seed;
  return config;
}

// [keys, dim]
template <typename T>
Array<T> Values(const InitializerConfig& config, int64_t dim, const std::vector<int64_t>& keys) {
  Array<T> values(static_cast<int64_t>(keys.size()) * dim);
  std::vector<char*> rows;
  for (size_t i = 0; i < keys.size(); ++i) {
    rows.push_back(reinterpret_cast<char*>(values.data() + static_cast<int64_t>(i) * dim));
  }
  const RowLayout layout = LayoutOf<T>(dim);
  EXPECT_TRUE(IsOk(CheckInitializer(config, layout)));
  Initialize(config, layout, keys.data(), rows.data(), static_cast<int64_t>(keys.size()));
  return values;
}

std::vector<int64_t> FirstKeys(int64_t n) {
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < n; ++i) keys.push_back(i - n / 2);
  return keys;
}

// Distance between the distribution of `values` and `cdf`, in units that are below 1.95 in all but
// one of a thousand samples (Kolmogorov).
template <typename Cdf>
double KolmogorovDistance(std::vector<double> values, const Cdf& cdf) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double distance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double p = cdf(values[i]);
    distance = std::max({distance, std::abs(p - static_cast<double>(i) / n),
                         std::abs(p - static_cast<double>(i + 1) / n)});
  }
  return distance * std::sqrt(n);
}
constexpr double kKolmogorovLimit = 1.95;

double NormalCdf(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
double TruncatedCdf(double x) {
  return (NormalCdf(x) - NormalCdf(-2)) / (NormalCdf(2) - NormalCdf(-2));
}

template <typename T>
std::vector<double> ToDoubles(const Array<T>& values) {
  std::vector<double> doubles;
  for (int64_t i = 0; i < values.size(); ++i) doubles.push_back(double{Load(values[i])});
  return doubles;
}

// Checkpoints keep the seed and not the rows to come: these values must never change. They were
// computed by a program in another language (numpy for the integers, Python's
// statistics.NormalDist for the quantiles).
struct Golden {
  uint64_t seed;
  int64_t key, d;
  double uniform;  // of [-1, 1)
  double normal, truncated;
};
constexpr Golden kGolden[] = {
    {0, 0, 0, 0x1.77b07d54b385cp-1, 1.111782643030692, 1.0372523390796786},
    {0, 0, 1, -0x1.e4bc703feb8fcp-1, -1.932889362908878, -1.6629261897950267},
    {0, 0, 37, 0x1.dc52c208cfce8p-2, 0.6206338636148732, 0.5887851167915021},
    {1, 42, 0, -0x1.ce27062673098p-1, -1.6577966371411894, -1.4816669100432749},
    {1, 42, 37, 0x1.bd5107966b600p-6, 0.03407162351416199, 0.03252079597555592},
    {~0ULL, -1, 1, -0x1.e08ba77d7d7c0p-1, -1.8703551009186856, -1.6251082305354105},
    {12345, kInt64Max, 1, 0x1.f16d073bc4c4cp-1, 2.190816758106073, 1.7948967504354347},
    {12345, kInt64Min, 0, 0x1.69ab47064d698p-2, 0.4582016620454544, 0.4359432356501372},
};

template <typename T>
class Initializer : public ::testing::Test {};
TYPED_TEST_SUITE(Initializer, ValueTypes);

TYPED_TEST(Initializer, ValuesNeverChange) {
  for (const Golden& golden : kGolden) {
    const auto value = [&](InitializerKind kind, double a, double b) {
      const Array<TypeParam> row =
          Values<TypeParam>(Config(kind, a, b, golden.seed), 40, {golden.key});
      return row[golden.d];
    };
    EXPECT_EQ(Load(value(InitializerKind::kUniform, -1, 1)),
              Load(Rounded<TypeParam>(golden.uniform)));
    EXPECT_TRUE(IsClose(value(InitializerKind::kNormal, 0, 1), golden.normal, 1e-1));
    EXPECT_TRUE(IsClose(value(InitializerKind::kNormal, 10, 3), 10 + 3 * golden.normal, 1));
    EXPECT_TRUE(IsClose(value(InitializerKind::kTruncatedNormal, 0, 1), golden.truncated, 1e-1));
  }
}

// The quantiles are not only close to those of another program: their bits never change either.
TYPED_TEST(Initializer, BitsNeverChange) {
  const std::vector<int64_t> keys = FirstKeys(1000);
  const auto hash = [&](InitializerKind kind) {
    uint64_t hash = 14695981039346656037ULL;  // FNV-1a
    for (const char c : Values<TypeParam>(Config(kind, 0.1, 0.9, 7), 33, keys).bytes()) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    }
    return hash;
  };
  const std::vector<uint64_t> got = {hash(InitializerKind::kUniform),
                                     hash(InitializerKind::kNormal),
                                     hash(InitializerKind::kTruncatedNormal)};
  // In the order of ValueType; the same at every SIMD level.
  const std::vector<uint64_t> want[] = {
      {5801706548420489162ULL, 2614264566594285436ULL, 17223981669718714664ULL},
      {12083806645899651457ULL, 12027887058893923915ULL, 8412350333811334462ULL},
      {5519161503572350745ULL, 11402817459722475669ULL, 16489848398329545122ULL},
      {16135340303554599675ULL, 2404866523410269899ULL, 10331171221802731343ULL}};
  EXPECT_EQ(got, want[static_cast<size_t>(kValueTypeOf<TypeParam>)]);
}

TYPED_TEST(Initializer, RowsDoNotDependOnTheBatch) {
  Random random(3);
  std::vector<int64_t> keys = FirstKeys(500);
  for (const InitializerKind kind :
       {InitializerKind::kUniform, InitializerKind::kNormal, InitializerKind::kTruncatedNormal,
        InitializerKind::kDebug, InitializerKind::kConstant}) {
    for (const int64_t dim : {1, 3, 16, 17, 50}) {
      const InitializerConfig config = Config(kind, 0.5, 0.75, 11);
      std::shuffle(keys.begin(), keys.end(), random);
      const std::string together = Values<TypeParam>(config, dim, keys).bytes();
      std::string alone;
      for (const int64_t key : keys) alone += Values<TypeParam>(config, dim, {key}).bytes();
      EXPECT_EQ(together, alone) << "kind " << static_cast<int>(kind) << ", dim " << dim;
    }
  }
}

TYPED_TEST(Initializer, ARowIsThePrefixOfAWiderOne) {
  for (const InitializerKind kind : {InitializerKind::kUniform, InitializerKind::kNormal}) {
    const InitializerConfig config = Config(kind, 0, 1, 5);
    const std::string wide = Values<TypeParam>(config, 67, {99}).bytes();
    for (int64_t dim = 1; dim < 67; ++dim) {
      const std::string row = Values<TypeParam>(config, dim, {99}).bytes();
      EXPECT_EQ(row, wide.substr(0, row.size()));
    }
  }
}

TYPED_TEST(Initializer, UniformNeverGivesItsUpperLimit) {
  // Ranges of a few values of the type, where most draws round to a limit.
  constexpr double kEps = ValueTraits<TypeParam>::kEpsilon;
  const double limits[][2] = {
      {1, 1 + kEps}, {1, 1 + 3 * kEps}, {-1 - 3 * kEps, -1},   {-2 * kEps, 0},
      {0, 1},        {-1, 1},           {0.1, 0.1 + 8 * kEps}, {-0.3 - 8 * kEps, -0.3}};
  for (const auto& limit : limits) {
    const double a = limit[0], b = limit[1];
    double low = b, high = a;
    for (const double value : ToDoubles(
             Values<TypeParam>(Config(InitializerKind::kUniform, a, b, 1), 16, FirstKeys(5000)))) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
    EXPECT_GE(low, a);
    EXPECT_LT(high, b);
  }
  const Array<TypeParam> point =
      Values<TypeParam>(Config(InitializerKind::kUniform, 0.5, 0.5), 4, {1, 2});
  for (int64_t i = 0; i < point.size(); ++i) EXPECT_EQ(double{Load(point[i])}, 0.5);
}

TYPED_TEST(Initializer, DebugIsTheKeyModulo100000) {
  const std::vector<int64_t> keys = {0, 7, 1234, 99999, 100000, 100007, -1, -100000, kInt64Min};
  const double want[] = {0, 7, 1234, 99999, 0, 7, 99999, 0, 24192};
  const Array<TypeParam> values =
      Values<TypeParam>(Config(InitializerKind::kDebug, 5, 5, 5), 3, keys);
  for (int64_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(Load(values[i]), Load(Rounded<TypeParam>(want[i / 3]))) << "value " << i;
  }
}

TYPED_TEST(Initializer, ConstantAndMatrix) {
  const Array<TypeParam> constant =
      Values<TypeParam>(Config(InitializerKind::kConstant, 0.3), 3, {5, -5});
  for (int64_t i = 0; i < constant.size(); ++i) {
    EXPECT_EQ(Load(constant[i]), Load(Rounded<TypeParam>(0.3)));
  }

  InitializerConfig config = Config(InitializerKind::kMatrix);
  Array<TypeParam> matrix(3 * 2);  // rows 0 1, 2 3, 4 5
  for (int64_t i = 0; i < 6; ++i) matrix[i] = Rounded<TypeParam>(static_cast<double>(i));
  const std::string bytes = matrix.bytes();
  config.matrix.assign(bytes.begin(), bytes.end());
  const Array<TypeParam> values = Values<TypeParam>(config, 2, {0, 1, 2, 3, -1, kInt64Min});
  const double want[] = {0, 1, 2, 3, 4, 5, 0, 1, 4, 5, 2, 3};  // -2^63 mod 3 = 1
  for (int64_t i = 0; i < values.size(); ++i) EXPECT_EQ(double{Load(values[i])}, want[i]);
}

TEST(InitializerDistribution, Uniform) {
  const auto values =
      ToDoubles(Values<float>(Config(InitializerKind::kUniform, -2, 6, 9), 16, FirstKeys(20000)));
  EXPECT_LT(KolmogorovDistance(values, [](double x) { return (x + 2) / 8; }), kKolmogorovLimit);
}

TEST(InitializerDistribution, Normal) {
  const auto values =
      ToDoubles(Values<double>(Config(InitializerKind::kNormal, 3, 2, 9), 16, FirstKeys(20000)));
  EXPECT_LT(KolmogorovDistance(values, [](double x) { return NormalCdf((x - 3) / 2); }),
            kKolmogorovLimit);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  EXPECT_LT(*low, 3 - 4 * 2.0);
  EXPECT_GT(*high, 3 + 4 * 2.0);
}

TEST(InitializerDistribution, TruncatedNormal) {
  const auto values = ToDoubles(
      Values<double>(Config(InitializerKind::kTruncatedNormal, 3, 2, 9), 16, FirstKeys(20000)));
  EXPECT_LT(KolmogorovDistance(values, [](double x) { return TruncatedCdf((x - 3) / 2); }),
            kKolmogorovLimit);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  EXPECT_GE(*low, 3 - 2 * 2.0);
  EXPECT_LE(*high, 3 + 2 * 2.0);
  EXPECT_LT(*low, 3 - 1.999 * 2.0);
  EXPECT_GT(*high, 3 + 1.999 * 2.0);
}

// Neighbours in key, position and seed have nothing to do with each other.
TEST(InitializerDistribution, IsIndependent) {
  constexpr int64_t kDim = 16, kKeys = 20000;
  const auto config = Config(InitializerKind::kUniform, -1, 1, 21);
  const Array<double> values = Values<double>(config, kDim, FirstKeys(kKeys));
  const Array<double> other =
      Values<double>(Config(InitializerKind::kUniform, -1, 1, 22), kDim, FirstKeys(kKeys));
  const auto correlation = [&](const Array<double>& a, const Array<double>& b, int64_t lag) {
    double sum = 0;
    for (int64_t i = 0; i + lag < a.size(); ++i) sum += a[i] * b[i + lag];
    return 3 * sum / static_cast<double>(a.size() - lag);  // the variance is 1/3
  };
  const double five_deviations = 5 / std::sqrt(static_cast<double>(kDim * kKeys));
  for (const int64_t lag : {1, 2, 8, 15, 16, 32, 160}) {
    EXPECT_LT(std::abs(correlation(values, values, lag)), five_deviations) << "lag " << lag;
  }
  EXPECT_LT(std::abs(correlation(values, other, 0)), five_deviations);
  EXPECT_NEAR(correlation(values, values, 0), 1, 0.02);
  const std::vector<double> all = values.values();
  const std::set<double> distinct(all.begin(), all.end());
  EXPECT_EQ(distinct.size(), static_cast<size_t>(values.size()));
}

TEST(CheckInitializer, RefusesNumbersThatMakeNoSense) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kMax = std::numeric_limits<double>::max();
  const RowLayout layout = LayoutOf<float>(2);
  const auto check = [&](InitializerKind kind, double a, double b) {
    return CheckInitializer(Config(kind, a, b), layout);
  };
  EXPECT_TRUE(IsInvalid(check(InitializerKind::kConstant, kNan, 0), {"finite", "nan"}));
  EXPECT_TRUE(IsInvalid(check(InitializerKind::kUniform, 2, 1), {"a <= b", "a = 2", "b = 1"}));
  EXPECT_TRUE(IsInvalid(check(InitializerKind::kUniform, -kMax, kMax), {"a <= b"}));
  EXPECT_TRUE(IsInvalid(check(InitializerKind::kNormal, 0, -1), {"deviation", "-1"}));
  EXPECT_TRUE(IsOk(check(InitializerKind::kNormal, -5, 0)));
  InitializerConfig matrix = Config(InitializerKind::kMatrix);
  EXPECT_TRUE(IsInvalid(CheckInitializer(matrix, layout), {"[rows, dim]", "8 bytes", "got 0"}));
  matrix.matrix.resize(12);
  EXPECT_TRUE(IsInvalid(CheckInitializer(matrix, layout), {"got 12"}));
  matrix.matrix.resize(16);
  EXPECT_TRUE(IsOk(CheckInitializer(matrix, layout)));
}

TEST(ParseInitializerKind, KnowsItsNames) {
  InitializerKind kind;
  EXPECT_TRUE(IsOk(ParseInitializerKind("truncated_normal", &kind)));
  EXPECT_EQ(kind, InitializerKind::kTruncatedNormal);
  EXPECT_TRUE(IsOk(ParseInitializerKind("matrix", &kind)));
  EXPECT_EQ(kind, InitializerKind::kMatrix);
  EXPECT_STREQ(InitializerKindName(InitializerKind::kMatrix), "matrix");
  EXPECT_TRUE(IsInvalid(ParseInitializerKind("zeros", &kind), {"constant", "debug", "zeros"}));
}

TEST(Log, IsWithinTwoUlp) {
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const int exponent = static_cast<int>(RandomInt(&random, -1021, 1022));
    const double mantissa = 0.5 + std::ldexp(static_cast<double>(random() >> 11), -54);
    // Half of them near 1, where the logarithm is small.
    const double x = i % 2 == 0 ? std::ldexp(mantissa, exponent) : mantissa + 0.25;
    const double want = std::log(x);
    const double ulp = std::nextafter(std::abs(want), 1e300) - std::abs(want);
    ASSERT_LE(std::abs(Log(x) - want), 2.5 * ulp) << x;  // std::log is within half an ulp itself
  }
  EXPECT_EQ(Log(1.0), 0.0);
}

TEST(NormalQuantile, IsTheInverseOfTheDistribution) {
  for (double p = 1e-300; p < 0.5 - kCentral; p *= 1.01) {
    const double x = TailNormalQuantile(p);
    // The distribution amplifies a relative error of x by about x^2.
    EXPECT_NEAR(NormalCdf(-x) / p, 1, 1e-15 * (x * x + 2)) << p;
  }
  for (double q = -kCentral; q <= kCentral; q += 1e-4) {
    EXPECT_NEAR(NormalCdf(CentralNormalQuantile(q)) - 0.5, q, 4e-16) << q;
  }
}

}  // namespace
}  // namespace fused_embedding
