// Files that are not what was written, and files for other tables.

#include "tests/cpp/checkpoint_testing.h"
#include "tf_ops/core/base/crc32c.h"
#include "tf_ops/core/checkpoint/format.h"
#include "tf_ops/core/checkpoint/writer.h"

namespace fused_embedding {
namespace {

class Damage : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    TableConfig config = ConfigOf(1);
    config.num_shards = 1;
    config.admission = {AdmissionKind::kCounter, 2, 0, 0};
    config.initializer.kind = InitializerKind::kMatrix;
    config.initializer.matrix.assign(8, 'm');
    table_ = MakeTable(config);
    AddSlots({{"s", 1, 0}}, table_.get());
    Train({1, 2, 3}, 2, 1, table_.get());
    Train({4, 5}, 1, 1, table_.get());
    bytes_ = ReadFile(Saved(*table_));
    target_ = MakeTable(config);
    Train({7, 8, 9}, 2, 1, target_.get());
    before_ = ContentOf(*target_);
  }

  Status RestoreBytes(const std::string& bytes) {
    WriteFile(Path("damaged"), bytes);
    const Status status = Restore({Path("damaged")}, target_.get());
    if (!status.ok()) {
      EXPECT_TRUE(ContentOf(*target_) == before_) << "the table was harmed";
    }
    return status;
  }

  ::testing::AssertionResult IsDataLoss(const std::string& bytes, const char* reason = "") {
    return Fails(RestoreBytes(bytes), StatusCode::kDataLoss, {Path("damaged").c_str(), reason});
  }

  TablePtr table_, target_;
  std::string bytes_;
  Content before_;
};

TEST_F(Damage, EveryFlippedByteIsFound) {
  ASSERT_GT(bytes_.size(), 400u);
  for (size_t i = 0; i < bytes_.size(); ++i) {
    for (const int mask : {0x01, 0x80}) {
      std::string flipped = bytes_;
      flipped[i] = static_cast<char>(flipped[i] ^ mask);
      ASSERT_TRUE(IsDataLoss(flipped)) << "byte " << i << ", mask " << mask;
    }
  }
  EXPECT_TRUE(IsOk(RestoreBytes(bytes_)));
  EXPECT_TRUE(ContentOf(*target_) == ContentOf(*table_));
}

TEST_F(Damage, EveryTruncationIsFound) {
  for (size_t size = 0; size < bytes_.size(); ++size) {
    ASSERT_TRUE(IsDataLoss(bytes_.substr(0, size), "truncated")) << size << " bytes";
  }
  EXPECT_TRUE(IsDataLoss(bytes_ + '\0', "bytes follow its end"));
  EXPECT_TRUE(IsDataLoss(bytes_ + bytes_, "bytes follow its end"));
}

TEST_F(Damage, EveryZeroedRangeIsFound) {
  Random random(6);
  for (int i = 0; i < 300; ++i) {
    const auto n = static_cast<int64_t>(bytes_.size());
    const int64_t begin = RandomInt(&random, 0, n - 1);
    const int64_t size = RandomInt(&random, 1, n - begin);
    std::string zeroed = bytes_;
    zeroed.replace(static_cast<size_t>(begin), static_cast<size_t>(size), static_cast<size_t>(size),
                   '\0');
    if (zeroed == bytes_) continue;
    ASSERT_TRUE(IsDataLoss(zeroed)) << begin << ", " << size;
  }
}

TEST_F(Damage, EveryMissingRepeatedOrSwappedBlockIsFound) {
  std::vector<std::string> blocks;
  for (size_t begin = sizeof(FilePrefix); begin < bytes_.size();) {
    BlockHeader header;
    std::memcpy(&header, bytes_.data() + begin, sizeof(header));
    blocks.push_back(bytes_.substr(begin, sizeof(header) + header.payload_bytes));
    begin += blocks.back().size();
  }
  ASSERT_EQ(blocks.size(), 6u);  // one of each but Bloom counters
  const auto file = [&](const std::vector<std::string>& parts) {
    std::string bytes = bytes_.substr(0, sizeof(FilePrefix));
    for (const std::string& part : parts) bytes += part;
    return bytes;
  };
  ASSERT_EQ(file(blocks), bytes_);
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::vector<std::string> missing = blocks, repeated = blocks;
    missing.erase(missing.begin() + static_cast<int64_t>(i));
    EXPECT_TRUE(IsDataLoss(file(missing))) << "block " << i;
    repeated.insert(repeated.begin() + static_cast<int64_t>(i), blocks[i]);
    EXPECT_TRUE(IsDataLoss(file(repeated))) << "block " << i;
    for (size_t j = 0; j < i; ++j) {
      std::vector<std::string> swapped = blocks;
      std::swap(swapped[i], swapped[j]);
      EXPECT_TRUE(IsDataLoss(file(swapped))) << "blocks " << i << " and " << j;
    }
  }
}

TEST_F(Damage, OtherFilesAreNamed) {
  EXPECT_TRUE(IsDataLoss("", "truncated"));
  EXPECT_TRUE(IsDataLoss(std::string(5000, 'x'), "does not begin as the file"));
  EXPECT_TRUE(Fails(Restore({Path("absent")}, target_.get()), StatusCode::kFailedPrecondition,
                    {Path("absent").c_str(), "No such file"}));
  EXPECT_TRUE(
      Fails(Restore({Path("")}, target_.get()), StatusCode::kFailedPrecondition, {"not a file"}));
  EXPECT_TRUE(IsInvalid(Restore({}, target_.get()), {"at least one checkpoint"}));
  // The second of two: the first is not loaded either.
  WriteFile(Path("bad"), bytes_.substr(0, bytes_.size() - 1));
  EXPECT_TRUE(Fails(Restore({Path("table"), Path("bad")}, target_.get()), StatusCode::kDataLoss,
                    {Path("bad").c_str()}));
  EXPECT_TRUE(ContentOf(*target_) == before_);
}

TEST_F(Damage, ANewerFormatIsNamed) {
  FilePrefix prefix;
  std::memcpy(&prefix, bytes_.data(), sizeof(prefix));
  prefix.version = kFormatVersion + 1;
  prefix.crc = Crc32c({reinterpret_cast<const char*>(&prefix), offsetof(FilePrefix, crc)});
  std::string newer = bytes_;
  newer.replace(0, sizeof(prefix), reinterpret_cast<const char*>(&prefix), sizeof(prefix));
  EXPECT_TRUE(Fails(RestoreBytes(newer), StatusCode::kUnimplemented,
                    {Path("damaged").c_str(), "format version 4", "reads versions up to 3"}));
}

// Files whose checksums are right and whose content is not.
class Forged : public Damage {
 protected:
  struct Piece {
    BlockType type;
    std::string payload;
  };

  // A whole file of these blocks, with a right footer unless there is one.
  Status RestoreBlocks(std::vector<Piece> blocks) {
    BlockWriter writer;
    EXPECT_TRUE(IsOk(writer.Open(Path("forged"))));
    for (const Piece& block : blocks) {
      const auto size = static_cast<int64_t>(block.payload.size());
      EXPECT_TRUE(IsOk(writer.Write(block.type, {block.payload.data(), size})));
    }
    EXPECT_TRUE(IsOk(writer.Place()));
    const Status status = Restore({Path("forged")}, target_.get());
    if (!status.ok()) {
      EXPECT_TRUE(ContentOf(*target_) == before_) << "the table was harmed";
    }
    return status;
  }
  ::testing::AssertionResult IsForged(std::vector<Piece> blocks, const char* reason) {
    return Fails(RestoreBlocks(std::move(blocks)), StatusCode::kDataLoss,
                 {Path("forged").c_str(), reason});
  }

  static Piece Table(const TableHeader& header) { return {BlockType::kTable, EncodeTable(header)}; }
  static Piece Footer(const Totals& totals) { return {BlockType::kFooter, EncodeTotals(totals)}; }
  static TableHeader Header() {
    TableHeader header;
    header.dim = 1;
    return header;
  }
};

TEST_F(Forged, TheSmallestFile) { EXPECT_TRUE(IsOk(RestoreBlocks({Table(Header()), Footer({})}))); }

TEST_F(Forged, BlocksInDisorder) {
  EXPECT_TRUE(IsForged({Footer({})}, "not described first"));
  EXPECT_TRUE(IsForged({{BlockType::kRows, ""}}, "not described first"));
  EXPECT_TRUE(IsForged({Table(Header()), Table(Header()), Footer({})}, "described twice"));
  EXPECT_TRUE(IsForged({Table(Header())}, "truncated"));
  EXPECT_TRUE(IsForged({Table(Header()), Footer({}), Footer({})}, "bytes follow its end"));
  EXPECT_TRUE(IsForged({Table(Header()), {static_cast<BlockType>(12), ""}}, "no known type"));
}

TEST_F(Forged, Totals) {
  const std::string row(24, '\1');
  EXPECT_TRUE(IsForged({Table(Header()), {BlockType::kRows, row}, Footer({})}, "totals"));
  EXPECT_TRUE(IsForged({Table(Header()), Footer({1, 0, 0, 0})}, "totals"));
  EXPECT_TRUE(IsForged({Table(Header()), Footer({0, 1, 0, 0})}, "totals"));
  EXPECT_TRUE(IsForged({Table(Header()), Footer({0, 0, 1, 0})}, "totals"));
  EXPECT_TRUE(IsForged({Table(Header()), Footer({0, 0, 0, 1})}, "totals"));
  EXPECT_TRUE(IsForged({Table(Header()), {BlockType::kFooter, "x"}}, "totals cannot be read"));
}

TEST_F(Forged, Payloads) {
  EXPECT_TRUE(IsForged({Table(Header()), {BlockType::kRows, std::string(23, 'r')}, Footer({})},
                       "a row is incomplete"));
  EXPECT_TRUE(IsForged({Table(Header()), {BlockType::kFiltered, std::string(15, 'f')}},
                       "a count is incomplete"));
  EXPECT_TRUE(IsForged({{BlockType::kTable, EncodeTable(Header()) + "x"}}, "cannot be read"));
  std::string bad_type = EncodeTable(Header());
  bad_type[0] = 77;
  EXPECT_TRUE(IsForged({{BlockType::kTable, bad_type}}, "cannot be read"));
  TableHeader bad_initializer = Header();
  bad_initializer.initializer.a = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(IsForged({Table(bad_initializer), Footer({})}, "finite"));

  const auto slots = [&](std::vector<Slot> slots) {
    return std::vector<Piece>{Table(Header()), {BlockType::kSlots, EncodeSlots(slots)}, Footer({})};
  };
  EXPECT_TRUE(IsForged(slots({{"s", -1, 0}}), "bad width"));
  EXPECT_TRUE(IsForged(slots({{"s", 0, 0}}), "bad width"));
  EXPECT_TRUE(IsForged(slots({{"s", kMaxDim + 1, 0}}), "bad width"));
  EXPECT_TRUE(IsForged(slots({{"s", kInt64Max, 0}}), "bad width"));
  EXPECT_TRUE(IsForged(slots({{"s", int64_t{1} << 40, 0}, {"t", 1, 0}}), "bad width"));
  std::string long_name = EncodeSlots({{"name", 1, 0}});
  for (const int64_t size : {int64_t{-1}, kInt64Max, int64_t{1} << 40, int64_t{5000}}) {
    std::memcpy(long_name.data(), &size, sizeof(size));
    EXPECT_TRUE(IsForged({Table(Header()), {BlockType::kSlots, long_name}}, "cannot be read"));
  }
}

TEST_F(CheckpointTest, AnotherKindOfTableIsRefused) {
  const TablePtr table = MakeTable(ConfigOf(3));
  Train({1, 2}, 1, 1, table.get());
  const std::string path = Saved(*table);
  const TablePtr wider = MakeTable(ConfigOf(4));
  const TablePtr half = MakeTable(ConfigOf(3, ValueType::kHalf));
  for (EmbeddingTable* other : {wider.get(), half.get()}) Train({5}, 1, 1, other);
  EXPECT_TRUE(IsInvalid(Restore({path}, wider.get()),
                        {path.c_str(), "embedding_dim 3", "variable has embedding_dim 4"}));
  EXPECT_TRUE(IsInvalid(Restore({path}, half.get()), {path.c_str(), "float32", "float16"}));
  EXPECT_EQ(wider->size(), 1);
  EXPECT_EQ(half->size(), 1);
}

TEST_F(CheckpointTest, FilesOfDifferentVariablesAreRefused) {
  TableConfig config = ConfigOf();
  const TablePtr one = MakeTable(config);
  config.initializer.seed = 18;
  const TablePtr two = MakeTable(config);
  EXPECT_TRUE(IsInvalid(Restore({Saved(*one, "one"), Saved(*two, "two")}, one.get()),
                        {Path("one").c_str(), Path("two").c_str(), "seeds"}));
}

TEST_F(CheckpointTest, PartitionsMustMakeSense) {
  const TablePtr table = MakeTable(ConfigOf());
  const std::string path = Saved(*table);
  const auto restore = [&](PartitionStrategy strategy, int64_t index, int64_t count) {
    return Restore({path}, table.get(), {strategy, index, count});
  };
  EXPECT_TRUE(IsInvalid(restore(PartitionStrategy::kHash, 2, 2), {"partition_index", "2 of 2"}));
  EXPECT_TRUE(IsInvalid(restore(PartitionStrategy::kHash, -1, 2), {"-1 of 2"}));
  EXPECT_TRUE(IsInvalid(restore(PartitionStrategy::kHash, 0, 0), {"0 of 0"}));
  for (const PartitionStrategy strategy : {PartitionStrategy::kDiv, PartitionStrategy::kMod}) {
    EXPECT_TRUE(IsInvalid(restore(strategy, 0, 1), {"div and mod", "use hash or mod_ev"}));
  }
}

TEST_F(CheckpointTest, ATableThatIsTooSmallIsUnharmed) {
  Random random(7);
  const TablePtr table = MakeTable(ConfigOf());
  Train(RandomKeys(1000, &random), 1, 1, table.get());
  const std::string path = Saved(*table);
  TableConfig config = ConfigOf();
  config.max_capacity = 500;
  const TablePtr strict = MakeTable(config);
  Train({1, 2, 3}, 1, 1, strict.get());
  EXPECT_TRUE(Fails(Restore({path}, strict.get()), StatusCode::kResourceExhausted,
                    {path.c_str(), "1000 rows", "max_capacity = 500"}));
  EXPECT_EQ(strict->size(), 3);
  // Few enough for the table, and too many for one of its shards.
  std::vector<int64_t> of_a_shard;
  for (int64_t key = 0; of_a_shard.size() < 126; ++key) {
    if (strict->ShardOf(key) == 2) of_a_shard.push_back(key);
  }
  const TablePtr uneven = MakeTable(ConfigOf());
  Train(of_a_shard, 1, 1, uneven.get());
  EXPECT_TRUE(Fails(Restore({Saved(*uneven, "uneven")}, strict.get()),
                    StatusCode::kResourceExhausted,
                    {Path("uneven").c_str(), "126 rows", "4 shards have no room for 1 of them"}));
  EXPECT_EQ(strict->size(), 3);

  config.eviction = EvictionPolicy::kLru;
  const TablePtr lru = MakeTable(config);
  std::string warning;
  ASSERT_TRUE(IsOk(Restore({path}, lru.get(), {}, &warning)));
  EXPECT_EQ(lru->size(), 500);
  EXPECT_NE(warning.find("500 rows are left out"), std::string::npos) << warning;
}

}  // namespace
}  // namespace fused_embedding
