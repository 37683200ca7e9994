// Files of checkpoints whose checksums are right and whose content was changed. A restore refuses
// one before it drops the rows that the table has, or succeeds.

#include <cstdio>
#include <cstdlib>

#include "tests/cpp/cold_tier_testing.h"
#include "tests/cpp/temporary_folder.h"
#include "tf_ops/core/checkpoint/checkpoint.h"
#include "tf_ops/core/checkpoint/format.h"
#include "tf_ops/core/checkpoint/writer.h"

namespace fused_embedding {
namespace {

constexpr int kNumFiles = 200;  // FE_CRAFTED_FILES sets another number

struct Piece {
  BlockType type;
  std::string payload;
};
using Pieces = std::vector<Piece>;

Pieces PiecesOf(const std::string& bytes) {
  Pieces pieces;
  for (size_t begin = sizeof(FilePrefix); begin < bytes.size();) {
    BlockHeader header;
    std::memcpy(&header, bytes.data() + begin, sizeof(header));
    begin += sizeof(header);
    pieces.push_back(
        {static_cast<BlockType>(header.type), bytes.substr(begin, header.payload_bytes)});
    begin += header.payload_bytes;
  }
  return pieces;
}

void WritePieces(const Pieces& pieces, const std::string& path) {
  BlockWriter writer;
  ASSERT_TRUE(IsOk(writer.Open(path)));
  for (const Piece& piece : pieces) {
    ASSERT_TRUE(IsOk(writer.Write(piece.type, AsSpan(piece.payload))));
  }
  ASSERT_TRUE(IsOk(writer.Place()));
}

// The footer that these blocks should have.
std::string FooterOf(const Pieces& pieces) {
  Totals totals;
  RowLayout layout = TestConfig().layout;
  for (const Piece& piece : pieces) {
    const auto size = static_cast<int64_t>(piece.payload.size());
    if (piece.type == BlockType::kSlots) {
      static_cast<void>(DecodeSlots(AsSpan(piece.payload), &layout.slots).ok());
    }
    if (piece.type == BlockType::kRows) totals.num_rows += size / layout.row_bytes();
    if (piece.type == BlockType::kFiltered) totals.num_filtered += size / 16;
    if (piece.type == BlockType::kMatrix) totals.matrix_bytes += size;
    if (piece.type == BlockType::kBloom) totals.bloom_bytes += size;
    if (piece.type == BlockType::kBloomLines) totals.bloom_bytes += size;
    if (piece.type == BlockType::kRemoved) totals.num_removed += size / 8;
  }
  return EncodeTotals(totals);
}

// Rows so wide that memory is the limit are no subject of this test.
bool IsTooWide(const Piece& piece) {
  std::vector<Slot> slots;
  if (piece.type != BlockType::kSlots || !DecodeSlots(AsSpan(piece.payload), &slots).ok()) {
    return false;
  }
  int64_t width = 0;
  for (const Slot& slot : slots) width += slot.width;
  return width > 500;
}

class Crafter {
 public:
  explicit Crafter(uint64_t seed) : random_(seed) {}

  // Changes some blocks; `others` are of another file.
  void Change(const Pieces& others, Pieces* pieces) {
    for (int64_t n = RandomInt(&random_, 1, 3); n > 0; --n) {
      if (pieces->empty()) return;
      RandomBool(&random_) ? ChangeBytes(&Any(pieces)) : ChangeOrder(others, pieces);
    }
    const bool has_footer = !pieces->empty() && pieces->back().type == BlockType::kFooter;
    if (has_footer && RandomInt(&random_, 0, 9) > 0) pieces->back().payload = FooterOf(*pieces);
  }

  Random* random() { return &random_; }

 private:
  Piece& Any(Pieces* pieces) {
    return (*pieces)[static_cast<size_t>(
        RandomInt(&random_, 0, static_cast<int64_t>(pieces->size()) - 1))];
  }
  size_t Place(size_t size) {
    return static_cast<size_t>(RandomInt(&random_, 0, static_cast<int64_t>(size) - 1));
  }

  void ChangeBytes(Piece* piece) {
    const Piece before = *piece;
    std::string& bytes = piece->payload;
    constexpr int64_t kNumbers[] = {0,         1,         -1,        2,
                                    63,        64,        kInt64Max, kInt64Min,
                                    1LL << 31, 1LL << 32, 1LL << 24, (1LL << 24) + 1};
    constexpr size_t kLengths[] = {1, 8, 16, 24, 40, 64, 72};
    const size_t length = kLengths[Place(std::size(kLengths))];
    switch (RandomInt(&random_, 0, 3)) {
      case 0:
        if (bytes.empty()) return;
        bytes[Place(bytes.size())] ^= static_cast<char>(1 << RandomInt(&random_, 0, 7));
        break;
      case 1: {
        if (bytes.size() < 8) return;
        const int64_t number = kNumbers[Place(std::size(kNumbers))];
        // Most numbers are aligned; those behind a name are not.
        const size_t place = RandomBool(&random_) ? Place(bytes.size() / 8) * 8
                                                  : Place(bytes.size() - sizeof(number) + 1);
        std::memcpy(bytes.data() + place, &number, sizeof(number));
        break;
      }
      case 2:
        bytes.resize(bytes.size() - std::min(bytes.size(), length));
        break;
      default:
        bytes += bytes.size() < length ? std::string(length, '\1') : bytes.substr(0, length);
    }
    if (IsTooWide(*piece)) *piece = before;
  }

  void ChangeOrder(const Pieces& others, Pieces* pieces) {
    const auto place = static_cast<int64_t>(Place(pieces->size()));
    const auto piece = pieces->begin() + place;
    const Piece copy = *piece;
    switch (RandomInt(&random_, 0, 5)) {
      case 0:
        pieces->erase(piece);
        break;
      case 1:
        pieces->insert(piece, copy);
        break;
      case 2:
        std::swap(*piece, Any(pieces));
        break;
      case 3:
        piece->type = static_cast<BlockType>(RandomInt(&random_, 1, 11));
        break;
      case 4:
        pieces->insert(piece, others[Place(others.size())]);
        break;
      default: {
        if (copy.payload.empty()) return;
        const size_t size = Place(copy.payload.size());
        piece->payload.resize(size);
        pieces->insert(piece + 1, {copy.type, copy.payload.substr(size)});
      }
    }
  }

  Random random_;
};

// Everything that a restore replaces.
struct Everything {
  TableContents contents;
  std::vector<char> bloom;
  std::vector<Slot> slots;
  int64_t step = 0;

  bool operator==(const Everything& other) const {
    return contents == other.contents && bloom == other.bloom && slots == other.slots &&
           step == other.step;
  }
};

Everything EverythingOf(const EmbeddingTable& table) {
  Everything everything;
  everything.contents = ContentsOf(table);
  EXPECT_TRUE(IsOk(table.CopyBloom(&everything.bloom)));
  everything.slots = table.layout().slots;
  everything.step = table.step();
  return everything;
}

struct Kind {
  const char* name;
  std::function<void(TableConfig* config, const std::string& folder)> configure;
  bool is_series;
};

void AddMatrix(TableConfig* config) {
  config->initializer.kind = InitializerKind::kMatrix;
  config->initializer.matrix.assign(3 * 8, 'm');
}

const Kind kKinds[] = {
    {"counter",
     [](TableConfig* config, const std::string& /*folder*/) {
       config->admission = {AdmissionKind::kCounter, 2, 0, 0};
       AddMatrix(config);
     },
     false},
    {"bloom",
     [](TableConfig* config, const std::string& /*folder*/) {
       config->admission = {AdmissionKind::kBloom, 2, 200, 3};
     },
     false},
    {"series",
     [](TableConfig* config, const std::string& /*folder*/) {
       config->admission = {AdmissionKind::kCounter, 2, 0, 0};
     },
     true},
    {"bloom series",
     [](TableConfig* config, const std::string& /*folder*/) {
       config->admission = {AdmissionKind::kBloom, 2, 200, 3};
     },
     true},
    {"bounded",
     [](TableConfig* config, const std::string& /*folder*/) { config->max_capacity = 90; }, false},
    {"evicting",
     [](TableConfig* config, const std::string& /*folder*/) {
       config->max_capacity = 80;
       config->eviction = EvictionPolicy::kLru;
       config->check_mode = CheckMode::kIgnore;
     },
     false},
    {"tier",
     [](TableConfig* config, const std::string& folder) {
       config->storage.open = MemoryColdStore::Open;
       config->storage.path = folder;
       config->storage.dram_bytes = kStoreBytes + (64 << 10);
     },
     false},
};
constexpr size_t kNumKinds = std::size(kKinds);

// A table, what it was saved as, and one with other rows to restore into.
class Target {
 public:
  Target(const Kind& kind, const std::string& folder) : folder_(folder) {
    fs::create_directories(folder);
    TableConfig config = TestConfig();
    config.num_shards = 4;
    kind.configure(&config, folder + "/saved");
    const auto table = MakeTable(config);
    const std::vector<Slot> slots = {{"sum", 2, 0.25}, {"norm", 1, 0}};
    EXPECT_TRUE(IsOk(table->EnsureSlots(AsSpan(slots))));
    Train(table.get(), 1, 30);
    Train(table.get(), 1, 50);
    paths_ = {folder + "/save-0"};
    if (kind.is_series) {
      SaveSeries(table.get());
    } else {
      EXPECT_TRUE(IsOk(SaveTable(*table, paths_[0])));
    }
    for (const std::string& path : paths_) good_.push_back(PiecesOf(ReadFile(path)));
    kind.configure(&config, folder + "/target");
    table_ = MakeTable(config);
    EXPECT_TRUE(IsOk(table_->EnsureSlots({slots.data(), 1})));
    Train(table_.get(), 100, 120);
    Train(table_.get(), 100, 120);
    before_path_ = folder + "/before";
    EXPECT_TRUE(IsOk(SaveTable(*table_, before_path_)));
    Return();
  }

  const Pieces& good() const { return good_[0]; }
  int num_harmed() const { return num_harmed_; }

  // Returns whether the files were accepted.
  bool RestoreCrafted(const Pieces& others, Crafter* crafter) {
    const auto last = static_cast<int64_t>(paths_.size()) - 1;
    const auto changed = static_cast<size_t>(RandomInt(crafter->random(), 0, last));
    for (size_t i = 0; i < paths_.size(); ++i) {
      Pieces pieces = good_[i];
      if (i == changed) crafter->Change(others, &pieces);
      WritePieces(pieces, paths_[i]);
    }
    const Status status = Restore(paths_);
    if (status.ok()) {
      CheckUsable();
      Return();
      return true;
    }
    EXPECT_NE(status.message().find(folder_), std::string::npos) << status.message();
    if (EverythingOf(*table_) == before_) return false;
    ADD_FAILURE() << "the table was harmed: " << status.message();
    ++num_harmed_;
    Return();
    return false;
  }

 private:
  void Train(EmbeddingTable* table, int64_t begin, int64_t end) {
    const Ints keys = KeyRange(begin, end);
    table->AdvanceStep();
    const Lookup lookup = LookUp(table, keys);
    ASSERT_TRUE(IsOk(lookup.status));
    ASSERT_TRUE(IsOk(table->ForEachRow(SerialExec(), View(keys), View(lookup.handles), AddToRows)));
  }

  void SaveSeries(EmbeddingTable* table) {
    ASSERT_TRUE(IsOk(SaveIncrement({paths_[0], {}, {}}, table)));
    Train(table, 20, 60);
    EXPECT_EQ(EraseKeys(table, {25}), 1);
    const std::vector<std::string> base = paths_, link = {folder_ + "/link"};
    paths_.push_back(folder_ + "/save-1");
    ASSERT_TRUE(IsOk(SaveIncrement({paths_[1], AsSpan(base), AsSpan(link)}, table)));
  }

  Status Restore(const std::vector<std::string>& paths) {
    const auto num_links = static_cast<int64_t>(paths.size());
    return RestoreTable(SerialExec(), {AsSpan(paths), num_links}, PartitionFilter(), table_.get());
  }
  void Return() {
    ASSERT_TRUE(IsOk(Restore({before_path_})));
    before_ = EverythingOf(*table_);
    ASSERT_EQ(before_.contents.rows.size(), 20u);
  }
  // Whatever was accepted, the table works, and can be saved and restored.
  void CheckUsable() {
    const auto size = static_cast<int64_t>(ContentsOf(*table_).rows.size());
    EXPECT_EQ(table_->size(), size);
    const std::string path = folder_ + "/again";
    ASSERT_TRUE(IsOk(SaveTable(*table_, path)));
    EXPECT_TRUE(IsOk(Restore({path})));
    EXPECT_EQ(table_->size(), size);
  }

  const std::string folder_;
  std::vector<std::string> paths_;
  std::vector<Pieces> good_;
  std::string before_path_;
  std::unique_ptr<EmbeddingTable> table_;
  Everything before_;
  int num_harmed_ = 0;
};

TEST(CraftedFiles, AreRefusedBeforeTheRowsAreDropped) {
  const TemporaryFolder folder;
  const char* given = std::getenv("FE_CRAFTED_FILES");
  const int num_files = given == nullptr ? kNumFiles : std::atoi(given);
  std::vector<std::unique_ptr<Target>> targets;
  for (const Kind& kind : kKinds) {
    targets.push_back(std::make_unique<Target>(kind, folder.path() + "/" + kind.name));
  }
  int num_accepted[kNumKinds] = {};
  for (int i = 0; i < num_files; ++i) {
    const size_t kind = static_cast<size_t>(i) % kNumKinds;
    SCOPED_TRACE(std::string(kKinds[kind].name) + ", file " + std::to_string(i));
    Crafter crafter(static_cast<uint64_t>(i));
    const Pieces& others = targets[(kind + 1) % kNumKinds]->good();
    num_accepted[kind] += targets[kind]->RestoreCrafted(others, &crafter);
  }
  std::string counts;
  int num_all_accepted = 0, num_harmed = 0;
  for (size_t kind = 0; kind < kNumKinds; ++kind) {
    num_all_accepted += num_accepted[kind];
    num_harmed += targets[kind]->num_harmed();
    counts += (kind > 0 ? ", \"" : "\"") + std::string(kKinds[kind].name) +
              "\": " + std::to_string(num_accepted[kind]);
  }
  EXPECT_GT(num_all_accepted, num_files / 20);
  EXPECT_LT(num_all_accepted, num_files * 9 / 10);
  if (given == nullptr) return;
  std::printf("{\"files\": %d, \"refused\": %d, \"harmed\": %d, \"accepted\": {%s}}\n", num_files,
              num_files - num_all_accepted, num_harmed, counts.c_str());
}

}  // namespace
}  // namespace fused_embedding
