#include "tf_ops/core/base/simd.h"

#include "tests/cpp/naive_lookup.h"
#include "tests/cpp/simd_levels.h"
#include "tf_ops/core/lookup/rows/row_math.h"

namespace fused_embedding {
namespace {

template <typename T>
class RowMath : public ::testing::Test {
 protected:
  using C = ComputeType<T>;

  static Array<T> RandomRow(Random* random, int64_t dim) {
    return Flat<T>(RandomMatrix<T>(random, 1, dim), dim);
  }
};
TYPED_TEST_SUITE(RowMath, ValueTypes);

TYPED_TEST(RowMath, DotIsTheSameAtEveryLevel) {
  using C = ComputeType<TypeParam>;
  Random random(5);
  for (int64_t dim = 0; dim <= 150; ++dim) {
    const Array<TypeParam> a = this->RandomRow(&random, dim);
    const Array<TypeParam> b = this->RandomRow(&random, dim);
    double want = 0;
    for (int64_t d = 0; d < dim; ++d) want += double{Load(a[d])} * double{Load(b[d])};
    std::vector<C> dots;
    ForEachSimdLevel(
        [&]() FE_INLINE_LAMBDA { dots.push_back(Dot<C>(a.span().data, b.span().data, dim)); });
    EXPECT_TRUE(IsClose(dots[0], want, 1 + std::abs(want))) << "dim " << dim;
    for (const C dot : dots) EXPECT_EQ(dot, dots[0]) << "dim " << dim;
  }
}

TYPED_TEST(RowMath, BlocksCoverEachValueOnce) {
  for (int64_t dim = 0; dim <= 300; ++dim) {
    std::vector<int64_t> seen;
    ForEachBlock(dim, [&](auto width_constant, int64_t first, int64_t width) {
      constexpr int64_t kWidth = decltype(width_constant)::value;
      EXPECT_TRUE(kWidth == 0 || kWidth == width);
      EXPECT_LE(width, kBlockWidth);
      for (int64_t d = first; d < first + width; ++d) seen.push_back(d);
    });
    ASSERT_EQ(static_cast<int64_t>(seen.size()), dim);
    for (int64_t d = 0; d < dim; ++d) EXPECT_EQ(seen[static_cast<size_t>(d)], d);
  }
}

TYPED_TEST(RowMath, AddsTheSameAtEveryLevel) {
  using C = ComputeType<TypeParam>;
  Random random(6);
  for (const int64_t dim : kDims) {
    const Array<TypeParam> a = this->RandomRow(&random, dim);
    const Array<TypeParam> b = this->RandomRow(&random, dim);
    std::vector<std::string> results;
    ForEachSimdLevel([&]() FE_INLINE_LAMBDA {
      Array<TypeParam> out(dim);
      ForEachBlock(dim, [&](auto width_constant, int64_t first, int64_t width) FE_INLINE_LAMBDA {
        constexpr int64_t kWidth = decltype(width_constant)::value;
        C sums[kBlockWidth] = {};
        AddScaled<kWidth>(C(0.3), a.span().data + first, width, sums);
        AddScaled<kWidth>(C(-1.7), b.span().data + first, width, sums);
        for (int64_t d = 0; d < width; ++d) Store(sums[d], &out[first + d]);
      });
      results.push_back(out.bytes());
      for (int64_t d = 0; d < dim; ++d) {
        const double want = 0.3 * Load(a[d]) - 1.7 * Load(b[d]);
        EXPECT_TRUE(IsClose(out[d], want, 4)) << "dim " << dim << ", value " << d;
      }
    });
    for (const std::string& result : results) EXPECT_EQ(result, results[0]) << "dim " << dim;
  }
}

TEST(ClipScale, IsThatOfClipByNorm) {
  EXPECT_EQ(ClipScale(4.0f, 2.0f), 0.5f);
  EXPECT_EQ(ClipScale(2.0f, 2.0f), 1.0f);
  EXPECT_EQ(ClipScale(1.0f, 2.0f), 1.0f);
  EXPECT_EQ(ClipScale(0.0f, 0.0f), 1.0f);
  EXPECT_EQ(ClipScale(std::numeric_limits<float>::infinity(), 2.0f), 0.0f);
}

}  // namespace
}  // namespace fused_embedding
