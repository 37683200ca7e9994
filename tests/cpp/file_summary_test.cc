// What a file says of a table that nobody knows.

#include "tf_ops/core/checkpoint/file_summary.h"

#include "tests/cpp/checkpoint_testing.h"
#include "tf_ops/core/checkpoint/writer.h"

namespace fused_embedding {
namespace {

using FileSummaryTest = CheckpointTest;

std::map<std::pair<uint32_t, uint32_t>, int> Counted(const KeyUse& use) {
  std::map<std::pair<uint32_t, uint32_t>, int> counts;
  EXPECT_EQ(use.frequencies.size(), use.versions.size());
  for (size_t i = 0; i < use.frequencies.size(); ++i) {
    ++counts[{use.frequencies[i], use.versions[i]}];
  }
  return counts;
}

TEST_F(FileSummaryTest, IsThatOfTheTable) {
  for (const ValueType type :
       {ValueType::kFloat, ValueType::kDouble, ValueType::kHalf, ValueType::kBFloat16}) {
    TableConfig config = ConfigOf(3, type);
    config.admission = {AdmissionKind::kCounter, 2, 0, 0};
    const TablePtr table = MakeTable(config);
    AddSlots({kAccumulator, kNorm}, table.get());
    Train({1, 2, 3}, 2, 7, table.get());
    Train({3}, 1, 9, table.get());
    Train({4, 5}, 1, 8, table.get());
    table->set_step(5);
    FileSummary summary;
    ASSERT_TRUE(IsOk(SummarizeTableFile(Saved(*table), &summary)));
    EXPECT_EQ(summary.header.dim, 3);
    EXPECT_EQ(summary.header.value_type, type);
    EXPECT_EQ(summary.header.step, 5);
    EXPECT_EQ(summary.header.admission.kind, AdmissionKind::kCounter);
    EXPECT_EQ(summary.header.admission.min_frequency, 2);
    EXPECT_EQ(summary.slots, (std::vector<Slot>{kAccumulator, kNorm}));
    using Counts = std::map<std::pair<uint32_t, uint32_t>, int>;
    EXPECT_EQ(Counted(summary.rows), (Counts{{{2, 7}, 2}, {{3, 9}, 1}}));
    EXPECT_EQ(Counted(summary.filtered), (Counts{{{1, 8}, 2}}));
    EXPECT_EQ(summary.bloom_bytes, 0);
  }
}

TEST_F(FileSummaryTest, OfAnEmptyTableWithABloomFilter) {
  TableConfig config = ConfigOf();
  config.admission = {AdmissionKind::kBloom, 2, 1000, 3};
  const TablePtr table = MakeTable(config);
  FileSummary summary;
  ASSERT_TRUE(IsOk(SummarizeTableFile(Saved(*table), &summary)));
  std::vector<char> bloom;
  ASSERT_TRUE(IsOk(table->CopyBloom(&bloom)));
  EXPECT_GE(summary.bloom_bytes, 1000);
  EXPECT_EQ(summary.bloom_bytes, static_cast<int64_t>(bloom.size()));
  EXPECT_TRUE(summary.rows.frequencies.empty());
  EXPECT_TRUE(summary.slots.empty());
}

TEST_F(FileSummaryTest, DamageIsFound) {
  const TablePtr table = MakeTable(ConfigOf());
  Train({1, 2, 3}, 2, 7, table.get());
  const std::string bytes = ReadFile(Saved(*table));
  FileSummary summary;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string flipped = bytes;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    WriteFile(Path("flipped"), flipped);
    ASSERT_TRUE(Fails(SummarizeTableFile(Path("flipped"), &summary), StatusCode::kDataLoss,
                      {Path("flipped").c_str()}))
        << "byte " << i;
  }
}

TEST_F(FileSummaryTest, ADimThatNoTableHasIsDamage) {
  for (const int64_t dim : {int64_t{0}, int64_t{-1}, kMaxDim + 1, kInt64Max}) {
    TableHeader header;
    header.dim = dim;
    BlockWriter writer;
    ASSERT_TRUE(IsOk(writer.Open(Path("forged"))));
    const std::string table = EncodeTable(header), totals = EncodeTotals({});
    ASSERT_TRUE(IsOk(writer.Write(BlockType::kTable, AsSpan(table))));
    ASSERT_TRUE(IsOk(writer.Write(BlockType::kFooter, AsSpan(totals))));
    ASSERT_TRUE(IsOk(writer.Place()));
    FileSummary summary;
    EXPECT_TRUE(Fails(SummarizeTableFile(Path("forged"), &summary), StatusCode::kDataLoss,
                      {Path("forged").c_str(), "dim"}));
  }
}

}  // namespace
}  // namespace fused_embedding
