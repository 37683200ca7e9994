#include "tf_ops/core/base/math.h"

#include "tests/cpp/core_testing.h"

namespace fused_embedding {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

// `got` is within `ulps` of `want`, which is a normal number.
::testing::AssertionResult IsWithin(double ulps, double got, double want) {
  const double error = std::abs(got - want) / (std::abs(want) * 0x1p-52);
  if (error <= ulps) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "got " << got << ", want " << want << ": " << error;
}

TEST(Log, IsThatOfTheCLibrary) {
  Random random(1);
  std::uniform_real_distribution<double> exponent(-1020, 1020), near_one(0.5, 2);
  for (int i = 0; i < 100000; ++i) {
    const double x = i % 2 == 0 ? std::exp2(exponent(random)) : near_one(random);
    EXPECT_TRUE(IsWithin(2, Log(x), std::log(x))) << "x = " << x;
  }
  EXPECT_EQ(Log(1.0), 0.0);
}

TEST(Exp, IsThatOfTheCLibrary) {
  Random random(2);
  std::uniform_real_distribution<double> wide(-708, 709), narrow(-1, 1);
  for (int i = 0; i < 100000; ++i) {
    const double x = i % 2 == 0 ? wide(random) : narrow(random);
    EXPECT_TRUE(IsWithin(2, Exp(x), std::exp(x))) << "x = " << x;
  }
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(-709.0), 0.0);
  EXPECT_EQ(Exp(710.0), kInfinity);
  EXPECT_EQ(Exp(-kInfinity), 0.0);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(kNaN)));
}

TEST(Pow, IsThatOfTheCLibrary) {
  Random random(3);
  std::uniform_real_distribution<double> log2_base(-60, 60), power(-2, 2);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::exp2(log2_base(random)), y = power(random);
    EXPECT_TRUE(IsWithin(4 + 2 * std::abs(y * std::log(x)), Pow(x, y), std::pow(x, y)))
        << "x = " << x << ", y = " << y;
  }
}

TEST(Pow, HasTheLimitsOfTheCLibrary) {
  for (const double x : {0.0, -0.0, 1.0, 2.0, kInfinity, kNaN}) {
    for (const double y : {-kInfinity, -2.0, -0.5, 0.0, 0.5, 1.0, 2.0, kInfinity}) {
      if (x == 1.0 && std::isinf(y)) continue;  // 1 there, NaN here
      const double got = Pow(x, y), want = std::pow(x, y);
      EXPECT_TRUE(got == want || std::abs(got) == std::abs(want) ||
                  (std::isnan(got) && std::isnan(want)) || IsWithin(4, got, want))
          << "x = " << x << ", y = " << y << ": " << got << ", want " << want;
    }
  }
  EXPECT_TRUE(std::isnan(Pow(-1.0, 0.5)));
}

}  // namespace
}  // namespace fused_embedding
