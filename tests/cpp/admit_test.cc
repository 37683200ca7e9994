#include "tf_ops/core/lookup/group/admit.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/cpp/table_testing.h"

namespace fused_embedding {
namespace {

constexpr int64_t kDim = 3;

struct AdmitResult {
  std::vector<char> is_admitted;
  std::vector<int64_t> frequencies;
  std::vector<float> values;  // of the keys, as an evaluation reads them
};

// Of a table with a counter for two, in two columns of `n` keys each, which repeat.
AdmitResult AdmitTwice(const CpuExec& exec, int64_t n) {
  TableConfig config;
  config.layout.dim = kDim;
  config.admission = {AdmissionKind::kCounter, 2};
  std::unique_ptr<EmbeddingTable> table;
  EXPECT_TRUE(IsOk(EmbeddingTable::Create(config, &table)));
  std::vector<int64_t> keys(static_cast<size_t>(2 * n));
  for (int64_t i = 0; i < 2 * n; ++i) keys[static_cast<size_t>(i)] = i * i % (n + 7) - 3;
  std::vector<float> first_values(keys.size() * kDim);
  std::iota(first_values.begin(), first_values.end(), 1.0f);
  AdmitResult result;
  result.is_admitted.resize(keys.size());
  result.frequencies.resize(keys.size());
  std::vector<AdmitColumn> columns;
  for (int64_t c = 0; c < 2; ++c) {
    AdmitColumn column{};
    column.keys = {keys.data() + c * n, n};
    column.first_values = reinterpret_cast<const char*>(first_values.data() + c * n * kDim);
    column.is_admitted = {reinterpret_cast<bool*>(result.is_admitted.data()) + c * n, n};
    column.frequencies = {result.frequencies.data() + c * n, n};
    columns.push_back(column);
  }
  const std::vector<int64_t> table_of_column = {0, 0};
  std::vector<AdmitTable> tables(1);
  tables[0].table = table.get();
  const AdmitInput in{AsSpan(columns), AsSpan(table_of_column), AsSpan(tables), true};
  EXPECT_TRUE(IsOk(AdmitKeys(exec, in)));
  Ints sought(keys.begin(), keys.end());
  LookupArgs args;
  args.insert = false;
  result.values = LookUp(table.get(), sought, args).values;
  return result;
}

TEST(Admit, IsTheSameForAnyNumberOfThreads) {
  constexpr int64_t kManyKeys = 20000;
  const AdmitResult serial = AdmitTwice(SerialExec(), kManyKeys);
  ThreadedExec threads(4);
  const AdmitResult parallel = AdmitTwice(threads, kManyKeys);
  EXPECT_EQ(serial.is_admitted, parallel.is_admitted);
  EXPECT_EQ(serial.frequencies, parallel.frequencies);
  EXPECT_EQ(serial.values, parallel.values);
}

TEST(Admit, SaysHowOftenKeysOccur) {
  const AdmitResult result = AdmitTwice(SerialExec(), 4);
  // Keys -3, -2, 1, 6 and 2, 0, 0, 2 (i * i % 11 - 3 for i = 0 .. 7).
  EXPECT_EQ(result.frequencies, (Ints{0, 0, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(result.is_admitted, (std::vector<char>{0, 0, 0, 0, 1, 1, 1, 1}));
  // Each new row starts with the values of its key's first occurrence.
  EXPECT_EQ(result.values[4 * kDim], 13.0f);
  EXPECT_EQ(result.values[7 * kDim], 13.0f);
  EXPECT_EQ(result.values[6 * kDim], 16.0f);
}

}  // namespace
}  // namespace fused_embedding
