// Rows that expire, by age and by their norm.

#include "tests/cpp/cuda_gpu_table_testing.h"

namespace fused_embedding {
namespace {

template <typename T>
class CudaGpuTableExpire : public GpuTest {};
TYPED_TEST_SUITE(CudaGpuTableExpire, ValueTypes);

// Key k was last used at step k / 10, and its value's numbers are k % 10: 3 of them.
template <typename T>
std::unique_ptr<GpuTable> TableOfAges(const GpuExec& gpu, int64_t num_keys) {
  GpuTableConfig config;
  config.layout.dim = 3;
  config.layout.value_type = kValueTypeOf<T>;
  config.initializer.kind = InitializerKind::kMatrix;
  const Array<T> matrix = [] {
    Array<T> numbers(30);
    for (int64_t i = 0; i < 30; ++i) numbers[i] = Rounded<T>(static_cast<double>(i / 3));
    return numbers;
  }();
  const std::string bytes = matrix.bytes();
  config.initializer.matrix.assign(bytes.begin(), bytes.end());
  config.max_bytes = BytesOfBuckets(config.layout, 16);
  auto table = MakeGpuTable(gpu, config);
  for (int64_t step = 0; 10 * step < num_keys; ++step) {
    std::vector<int64_t> keys;
    for (int64_t i = 0; i < 10; ++i) keys.push_back(10 * step + i);
    FindOrInsert(gpu, {table.get()}, {keys}, {{}, {}, step});
  }
  return table;
}

TYPED_TEST(CudaGpuTableExpire, TheOldAndTheSmall) {
  constexpr int64_t kNumKeys = 400;
  const TestGpu gpu;
  const double norm_of_4 = std::sqrt(3.0 * 4 * 4);
  for (const uint64_t seed : OrderSeeds()) {
    for (const Expiry& expiry : {Expiry{50, 20, 0}, Expiry{50, 0, norm_of_4}, Expiry{45, 9, 2.0},
                                 Expiry{0, 1, 0}, Expiry{1000, 0, 0}}) {
      const auto table = TableOfAges<TypeParam>(gpu, kNumKeys);
      std::vector<int64_t> kept;
      for (int64_t key = 0; key < kNumKeys; ++key) {
        const int64_t version = key / 10, number = key % 10;
        const bool is_old =
            expiry.steps_to_live > 0 && expiry.step - version > expiry.steps_to_live;
        const bool is_small =
            static_cast<double>(3 * number * number) < expiry.l2_threshold * expiry.l2_threshold;
        if (!is_old && !is_small) kept.push_back(key);
      }
      ShuffleOrder(seed);
      const int64_t num_waits = NumWaits(), num_changes = table->num_changes();
      int64_t num_expired = -1;
      ASSERT_TRUE(IsOk(ExpireInGpuTable(gpu, expiry, table.get(), &num_expired)));
      EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
      EXPECT_GT(table->num_changes(), num_changes);
      EXPECT_EQ(num_expired, kNumKeys - static_cast<int64_t>(kept.size()));
      std::vector<int64_t> keys = KeysOf(Export(gpu, *table));
      std::sort(keys.begin(), keys.end());
      EXPECT_EQ(keys, kept);
    }
  }
}

}  // namespace
}  // namespace fused_embedding
