#include "tests/cpp/cuda_testing.h"
#include "tf_ops/core/base/cuda/device.h"
#include "tf_ops/core/lookup/rows/device_inputs.h"

namespace fused_embedding {
namespace {

using CudaDeviceInputs = GpuTest;
using Ints = std::vector<int64_t>;

DeviceArray<int32_t> Entries(const std::vector<int32_t>& values) {
  return DeviceArray<int32_t>(Array<int32_t>::Of(values));
}

TEST_F(CudaDeviceInputs, RowsOfShardsFollowEachOther) {
  const std::vector<ShardRows> shards = {{1000, 0}, {5000, 2}, {9000, 2}};  // 2, 0 and 300 rows
  const DeviceArray<uintptr_t> rows(302);
  ASSERT_TRUE(LocateRows(gpu, AsSpan(shards), 12, {}, rows.span()).ok());
  const Array<uintptr_t> located = rows.ToHost();
  EXPECT_EQ(located[0], 1000u);
  EXPECT_EQ(located[1], 1012u);
  for (int64_t u = 2; u < 302; ++u) {
    EXPECT_EQ(located[u], 9000u + 12u * static_cast<uintptr_t>(u - 2));
  }
}

TEST_F(CudaDeviceInputs, PermutationSaysWhereRowsAre) {
  const std::vector<ShardRows> shards = {{1000, 0}, {5000, 1}};
  const DeviceArray<int32_t> permutation = Entries({1, 1, 0, 0, 1, 0});
  const DeviceArray<uintptr_t> rows(3);
  ASSERT_TRUE(LocateRows(gpu, AsSpan(shards), 8, permutation.view(), rows.span()).ok());
  EXPECT_EQ(rows.ToHost().values(), (std::vector<uintptr_t>{5008, 1000, 5000}));
}

TEST_F(CudaDeviceInputs, PermutationIsChecked) {
  const Ints sizes = {1, 2};
  const struct {
    std::vector<int32_t> entries;
    const char* error;
  } kCases[] = {
      {{1, 1, 0, 0, 1, 0}, ""},
      {{1, 1, 0, 0, 1, 1}, "partition_permutation[2] = (1, 1) occurs twice"},
      {{0, 0, 0, 0, 0, 0}, "partition_permutation[1] = (0, 0) occurs twice"},
      {{1, 1, 0, 1, 1, 1}, "partition_permutation[1] = (0, 1) is no row of emb_shards"},
      {{2, 0, 0, 0, 0, -1}, "partition_permutation[0] = (2, 0) is no row of emb_shards"},
      {{0, 0, 1, 0, -1, 0}, "partition_permutation[2] = (-1, 0) is no row of emb_shards"},
  };
  for (const uint64_t seed : OrderSeeds()) {
    ShuffleOrder(seed);
    for (const auto& of : kCases) {
      const DeviceArray<int32_t> permutation = Entries(of.entries);
      const int64_t num_waits = NumWaits();
      const Status status = CheckPermutation(gpu, AsSpan(sizes), permutation.view());
      EXPECT_EQ(status.ok(), *of.error == '\0');
      const int64_t num_errors = !status.ok();  // each is read back on its own
      EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 + num_errors : 0);
      EXPECT_NE(status.message().find(of.error), std::string::npos) << status.message();
    }
  }
}

TEST_F(CudaDeviceInputs, LastRowNeedsRowsThatDoNotDecrease) {
  const struct {
    Ints rows;
    int64_t last;
    const char* error;
  } kCases[] = {
      {{}, -1, ""},
      {{0}, 0, ""},
      {{0, 0, 7}, 7, ""},
      {{-1, 0}, 0, "indices[0, 0] = -1 follows -1"},
      {{4, 3, 2}, 0, "indices[1, 0] = 3 follows 4"},
  };
  for (const auto& of : kCases) {
    Ints indices;
    for (const int64_t row : of.rows) indices.insert(indices.end(), {row, -5});
    const DeviceArray<int64_t> device(Array<int64_t>::Of(indices));
    int64_t last = -7;
    const int64_t num_waits = NumWaits();
    const Status status =
        LastRowOf(gpu, {device.data(), static_cast<int64_t>(of.rows.size()), 2, "indices"}, &last);
    EXPECT_EQ(status.ok(), *of.error == '\0');
    EXPECT_NE(status.message().find(of.error), std::string::npos) << status.message();
    EXPECT_EQ(status.ok() ? last : of.last, of.last);
    if (status.ok()) {
      EXPECT_EQ(NumWaits() - num_waits, kIsEmulated && !of.rows.empty() ? 1 : 0);
    }
  }
}

TEST_F(CudaDeviceInputs, GridsAreMadeForThisDevice) {
  EXPECT_GE(NumMultiprocessors(), 2);  // 1 is what it says where CUDA cannot tell
}

TEST_F(CudaDeviceInputs, CopiesAndConverts) {
  const DeviceArray<int64_t> indices(Array<int64_t>::Of(Ints{5, -1, 0, -1, 9, -1}));
  const DeviceArray<int64_t> rows(3);
  ASSERT_TRUE(CopyRowIds(gpu, {indices.data(), 3, 2, "indices"}, rows.data()).ok());
  EXPECT_EQ(rows.ToHost().values(), (Ints{5, 0, 9}));

  const DeviceArray<int32_t> numbers(700);
  ASSERT_TRUE(Enumerate(gpu, numbers.span()).ok());
  const Array<int32_t> enumerated = numbers.ToHost();
  for (int32_t i = 0; i < 700; ++i) EXPECT_EQ(enumerated[i], i);

  const DeviceArray<int32_t> flags = Entries({0, 1, -3});
  const DeviceArray<bool> bools(3);
  ASSERT_TRUE(FlagsToBools(gpu, flags.view(), bools.span()).ok());
  const Array<bool> of_flags = bools.ToHost();
  EXPECT_FALSE(of_flags[0]);
  EXPECT_TRUE(of_flags[1]);
  EXPECT_TRUE(of_flags[2]);

  const DeviceArray<double> weights(Array<double>::Of(std::vector<double>{0.5, -2}));
  const DeviceArray<float> converted(2);
  ASSERT_TRUE(ConvertValues(gpu, weights.view(), converted.data()).ok());
  EXPECT_EQ(converted.ToHost().values(), (std::vector<float>{0.5f, -2.0f}));

  const DeviceArray<double> sums(Array<double>::Of(std::vector<double>{0.5, 2049, -3}));
  const DeviceArray<Half> stored(3);
  ASSERT_TRUE(StoreValues(gpu, sums.view(), stored.data()).ok());
  Array<Half> on_host = stored.ToHost();
  EXPECT_EQ(Load(on_host[0]), 0.5f);
  EXPECT_EQ(Load(on_host[1]), 2048.0f);  // rounded to even
  EXPECT_EQ(Load(on_host[2]), -3.0f);
}

}  // namespace
}  // namespace fused_embedding
