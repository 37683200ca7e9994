#include <utility>

#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/group_keys_testing.h"
#include "tf_ops/core/lookup/group/group_keys.cu.h"

namespace fused_embedding {
namespace {

using CudaGroupKeys = GpuTest;

// The arrays of a column on the GPU, and where its positions go.
struct DeviceColumn {
  explicit DeviceColumn(const KeyColumnCase& in)
      : column(in.Column()),
        ids(Array<int64_t>::Of(in.ids)),
        row_ids(Array<int64_t>::Of(in.row_ids)),
        weights(Array<float>::Of(in.weights)),
        positions(static_cast<int64_t>(in.ids.size())) {
    column.ids = ids.view();
    column.row_ids.data = row_ids.data();
    column.weights = weights.view();
  }

  GroupColumn<float> column;
  DeviceArray<int64_t> ids, row_ids;
  DeviceArray<float> weights;
  DeviceArray<int32_t> positions;
};

template <typename T>
Array<T> OnHost(const DeviceBuffer<T>& buffer) {
  Array<T> host(buffer.size());
  const size_t bytes = static_cast<size_t>(buffer.size()) * sizeof(T);
  if (bytes > 0) {
    Cuda(cudaMemcpyAsync(host.data(), buffer.data(), bytes, cudaMemcpyDeviceToHost, nullptr));
  }
  Cuda(cudaStreamSynchronize(nullptr));
  return host;
}

FoundKeys FindOnGpu(const GpuExec& gpu, const std::vector<KeyColumnCase>& cases,
                    int64_t num_tables) {
  std::vector<std::unique_ptr<DeviceColumn>> memory;
  std::vector<GroupColumn<float>> columns;
  std::vector<Span<int32_t>> positions;
  Ints table_of_column;
  for (const KeyColumnCase& column : cases) {
    memory.push_back(std::make_unique<DeviceColumn>(column));
    columns.push_back(memory.back()->column);
    positions.push_back(memory.back()->positions.span());
    table_of_column.push_back(column.table);
  }
  GroupKeysInput<float> in;
  in.columns = AsSpan(std::as_const(columns));
  in.table_of_column = AsSpan(std::as_const(table_of_column));
  in.positions = AsSpan(std::as_const(positions));
  in.num_tables = num_tables;
  GpuGroupKeys keys;
  FoundKeys found;
  const int64_t num_waits = NumWaits();
  (void)(found.status = FindGroupKeys(gpu, in, &keys));  // as nvcc wants it
  if (!found.status.ok()) return found;
  EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
  for (const auto& of_column : memory)
    found.positions.push_back(of_column->positions.ToHost().values());
  found.default_positions = keys.default_positions;
  const Array<int64_t> all_keys = OnHost(keys.keys);
  const Array<int32_t> all_counts = OnHost(keys.counts);
  int64_t begin = 0;
  for (const int64_t end : keys.ends) {
    found.keys.emplace_back(all_keys.view().data + begin, all_keys.view().data + end);
    found.counts.emplace_back(all_counts.view().data + begin, all_counts.view().data + end);
    begin = end;
  }
  return found;
}

TEST_F(CudaGroupKeys, EqualTheirDefinitionInAnyOrderOfThreads) {
  const TestGpu gpu;
  Random random(1);
  for (int round = 0; round < NumCases(100); ++round) {
    const int64_t num_tables = RandomInt(&random, 1, 4);
    std::vector<KeyColumnCase> columns;
    for (int64_t c = RandomInt(&random, 1, 6); c > 0; --c) {
      columns.push_back(RandomKeyColumn(&random, num_tables, round % 30 == 0 ? 3000 : 12));
    }
    const FoundKeys want = WantedKeys(columns, num_tables);
    for (const uint64_t seed : kOrderSeeds) {
      ShuffleOrder(seed);
      const FoundKeys found = FindOnGpu(gpu, columns, num_tables);
      ASSERT_TRUE(IsOk(found.status));
      ASSERT_TRUE(found == want) << "round " << round << ", order " << seed;
    }
  }
}

TEST_F(CudaGroupKeys, EveryIntegerIsAKey) {
  KeyColumnCase column{{kInt64Min, -1, kInt64Max}, {0, 0, 0}, 1};
  column.prune = false;
  const FoundKeys found = FindOnGpu(TestGpu(), {column}, 1);
  ASSERT_TRUE(IsOk(found.status));
  EXPECT_EQ(found.keys, std::vector<Ints>{column.ids});
}

TEST_F(CudaGroupKeys, NameTheColumnOfABadRow) {
  const FoundKeys found = FindOnGpu(TestGpu(), {{{1}, {0}, 1}, {{1}, {1}, 1}}, 1);
  EXPECT_TRUE(IsInvalid(found.status, {"column 1", "row_ids[0", "= 1"}));
}

TEST_F(CudaGroupKeys, ThereAreNoneOfNoColumns) {
  const FoundKeys found = FindOnGpu(TestGpu(), {}, 2);
  ASSERT_TRUE(IsOk(found.status));
  EXPECT_EQ(found.keys, (std::vector<Ints>{{}, {}}));
}

}  // namespace
}  // namespace fused_embedding
