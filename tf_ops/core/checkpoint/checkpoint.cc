#include "tf_ops/core/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/checkpoint/format.h"
#include "tf_ops/core/checkpoint/table_file.h"
#include "tf_ops/core/checkpoint/writer.h"

namespace fused_embedding {
namespace {

// What a reader keeps in memory; large enough that a block's header costs nothing.
constexpr int64_t kBlockBytes = int64_t{4} << 20;

// --- Saving ---

// In blocks of about kBlockBytes that end at a multiple of `unit_bytes`.
Status WriteInPieces(BlockType type, Span<const char> bytes, int64_t unit_bytes,
                     BlockWriter* writer) {
  const int64_t piece_bytes = std::max(kBlockBytes / unit_bytes, int64_t{1}) * unit_bytes;
  for (int64_t begin = 0; begin < bytes.size; begin += piece_bytes) {
    const int64_t size = std::min(piece_bytes, bytes.size - begin);
    FE_RETURN_IF_ERROR(writer->Write(type, {bytes.data + begin, size}));
  }
  return Status();
}

class TableSaver {
 public:
  TableSaver(const EmbeddingTable& table, BlockWriter* writer) : table_(table), writer_(writer) {}

  Status Save() {
    FE_RETURN_IF_ERROR(SaveHeader());
    for (int64_t shard = 0; shard < table_.num_shards(); ++shard) {
      FE_RETURN_IF_ERROR(SaveShard(shard));
    }
    FE_RETURN_IF_ERROR(SaveBloom());
    return writer_->Write(BlockType::kFooter, AsSpan(EncodeTotals(totals_)));
  }

 private:
  Status SaveHeader() {
    TableHeader header;
    header.value_type = table_.config().layout.value_type;
    header.dim = table_.config().layout.dim;
    header.initializer = table_.initializer();
    header.matrix_bytes = static_cast<int64_t>(header.initializer.matrix.size());
    header.admission = table_.config().admission;
    header.num_shards = table_.num_shards();
    header.hash_seed = table_.config().initializer.seed;
    header.step = table_.step();
    totals_.matrix_bytes = header.matrix_bytes;
    FE_RETURN_IF_ERROR(writer_->Write(BlockType::kTable, AsSpan(EncodeTable(header))));
    return WriteInPieces(BlockType::kMatrix, AsSpan(header.initializer.matrix), 1, writer_);
  }

  Status SaveShard(int64_t shard) {
    RowLayout layout;
    std::vector<char> rows;
    FilteredKeys filtered;
    FE_RETURN_IF_ERROR(table_.CopyShard(shard, &layout, &rows, &filtered));
    if (!(layout.slots == slots_)) {
      slots_ = layout.slots;
      FE_RETURN_IF_ERROR(writer_->Write(BlockType::kSlots, AsSpan(EncodeSlots(slots_))));
    }
    const int64_t row_bytes = layout.row_bytes();
    totals_.num_rows += static_cast<int64_t>(rows.size()) / row_bytes;
    FE_RETURN_IF_ERROR(WriteInPieces(BlockType::kRows, AsSpan(rows), row_bytes, writer_));
    return SaveFiltered(filtered);
  }

  Status SaveFiltered(const FilteredKeys& filtered) {
    constexpr size_t kMax = kBlockBytes / sizeof(RowHeader);
    std::vector<RowHeader> block;
    for (size_t begin = 0; begin < filtered.keys.size(); begin += kMax) {
      block.clear();
      for (size_t i = begin; i < std::min(begin + kMax, filtered.keys.size()); ++i) {
        block.push_back({filtered.keys[i], filtered.frequencies[i], filtered.versions[i]});
      }
      const auto n = static_cast<int64_t>(block.size());
      totals_.num_filtered += n;
      FE_RETURN_IF_ERROR(writer_->Write(
          BlockType::kFiltered,
          {reinterpret_cast<const char*>(block.data()), n * int64_t{sizeof(RowHeader)}}));
    }
    return Status();
  }

  Status SaveBloom() {
    std::vector<char> bloom;
    for (int64_t shard = 0; shard < table_.num_shards(); ++shard) {
      FE_RETURN_IF_ERROR(table_.CopyBloomOfShard(shard, &bloom));
      totals_.bloom_bytes += static_cast<int64_t>(bloom.size());
      FE_RETURN_IF_ERROR(WriteInPieces(BlockType::kBloom, AsSpan(bloom), 1, writer_));
    }
    return Status();
  }

  const EmbeddingTable& table_;
  BlockWriter* writer_;
  std::vector<Slot> slots_;  // of the rows that come
  Totals totals_;
};

// --- Restoring ---

RowHeader HeaderAt(const char* row) {
  RowHeader header;
  std::memcpy(&header, row, sizeof(header));
  return header;
}

// Rows of a file as a table takes them: numbers of slots in the table's order, initial values where
// the file has none.
class RowDecoder {
 public:
  RowDecoder(const RowLayout& file, const RowLayout& table)
      : file_(file), slot_width_(table.slot_width()) {
    const int64_t number_bytes = table.slot_number_bytes();
    initial_slots_.resize(static_cast<size_t>(table.slot_width() * number_bytes));
    int64_t to = 0;
    for (const Slot& slot : table.slots) {
      const int64_t bytes = slot.width * number_bytes;
      const int64_t from = OffsetInFile(slot);
      if (from >= 0) copies_.push_back({from, to, bytes});
      for (int64_t i = 0; i < slot.width; ++i) {
        char* number = initial_slots_.data() + to + i * number_bytes;
        const auto as_float = static_cast<float>(slot.initial);
        if (number_bytes == 8) std::memcpy(number, &slot.initial, sizeof(slot.initial));
        if (number_bytes == 4) std::memcpy(number, &as_float, sizeof(as_float));
      }
      to += bytes;
    }
  }

  void Add(const char* row) {
    const RowHeader header = HeaderAt(row);
    keys_.push_back(header.key);
    frequencies_.push_back(header.frequency);
    versions_.push_back(header.version);
    const char* value = row + file_.value_offset();
    values_.insert(values_.end(), value, value + file_.value_bytes());
    const size_t slots = slots_.size();
    slots_.insert(slots_.end(), initial_slots_.begin(), initial_slots_.end());
    for (const Copy& copy : copies_) {
      std::memcpy(slots_.data() + slots + copy.to, row + copy.from,
                  static_cast<size_t>(copy.bytes));
    }
  }

  void Clear() {
    keys_.clear();
    frequencies_.clear();
    versions_.clear();
    values_.clear();
    slots_.clear();
  }

  EmbeddingTable::Content content() const {
    const auto n = static_cast<int64_t>(keys_.size());
    EmbeddingTable::Content content;
    content.keys = {keys_.data(), n};
    content.values = values_.data();
    content.slots = slots_.data();
    content.slot_width = slot_width_;
    content.frequencies = {frequencies_.data(), n};
    content.versions = {versions_.data(), n};
    return content;
  }

 private:
  struct Copy {
    int64_t from;  // in a row of the file
    int64_t to;    // in the slots of a row of the table
    int64_t bytes;
  };

  int64_t OffsetInFile(const Slot& wanted) const {
    int64_t offset = file_.slots_offset();
    for (const Slot& slot : file_.slots) {
      if (slot == wanted) return offset;
      offset += slot.width * file_.slot_number_bytes();
    }
    return -1;
  }

  const RowLayout& file_;
  int64_t slot_width_;  // of the table
  std::vector<Copy> copies_;
  std::vector<char> initial_slots_;  // of a row
  std::vector<int64_t> keys_, frequencies_, versions_;
  std::vector<char> values_, slots_;
};

// Whether these can be partitions of one variable.
bool IsOfSameTable(const TableHeader& a, const TableHeader& b) {
  const InitializerConfig &i = a.initializer, &j = b.initializer;
  return i.kind == j.kind && i.a == j.a && i.b == j.b && i.seed == j.seed && i.matrix == j.matrix &&
         a.admission.kind == b.admission.kind && a.hash_seed == b.hash_seed &&
         a.num_shards == b.num_shards;
}

class TableRestorer {
 public:
  TableRestorer(const CpuExec& exec, Span<const std::string> paths, const PartitionFilter& filter,
                EmbeddingTable* table)
      : exec_(exec), paths_(paths), filter_(filter), table_(table) {}

  // Reads all files, and changes nothing.
  Status Check() {
    for (int64_t i = 0; i < paths_.size; ++i) {
      TableFileVisitor visitor;
      visitor.slots = [&](Span<const Slot> slots) { return AddSlots(paths_[i], slots); };
      visitor.rows = [&](const RowLayout& layout, Span<const char> rows) {
        CountKept(layout, rows);
        return Status();
      };
      visitor.filtered = [&](Span<const RowHeader> keys) {
        has_filtered_ = has_filtered_ || !keys.empty();
        return Status();
      };
      visitor.bloom = [&](Span<const char> counters) {
        has_bloom_ = has_bloom_ || !counters.empty();
        return Status();
      };
      TableHeader header;
      FE_RETURN_IF_ERROR(ReadTableFile(paths_[i], table_->config().layout, visitor, &header));
      FE_RETURN_IF_ERROR(AddHeader(i, std::move(header)));
    }
    return CheckFits(table_->config(), "checkpoint " + paths_[0], num_kept_);
  }

  Status Load() {
    table_->Clear();
    FE_RETURN_IF_ERROR(table_->SetInitializer(header_.initializer));
    FE_RETURN_IF_ERROR(table_->EnsureSlots(AsSpan(slots_)));
    table_->set_step(header_.step);
    const bool keeps_bloom = KeepsBloom();
    if (keeps_bloom) FE_RETURN_IF_ERROR(table_->CopyBloomOfShard(0, &bloom_));
    bloom_shard_bytes_ = static_cast<int64_t>(bloom_.size());
    bloom_.clear();
    for (int64_t i = 0; i < paths_.size; ++i) {
      TableFileVisitor visitor;
      visitor.rows = [&](const RowLayout& layout, Span<const char> rows) {
        return LoadRows(layout, rows);
      };
      visitor.filtered = [&](Span<const RowHeader> keys) { return LoadFiltered(keys); };
      visitor.bloom = [&](Span<const char> counters) {
        return keeps_bloom && i == filter_.index ? LoadBloom(counters) : Status();
      };
      TableHeader header;
      FE_RETURN_IF_ERROR(ReadTableFile(paths_[i], table_->config().layout, visitor, &header));
    }
    if (!keeps_bloom || next_bloom_shard_ == table_->num_shards()) return Status();
    return DataLoss("the Bloom filter of checkpoint ", paths_[filter_.index],
                    " has not the size that the file says; restore another one");
  }

  // What did not come back; to be asked after Load.
  std::string Warning() const {
    std::string warning;
    const AdmissionKind kind = table_->config().admission.kind;
    if (has_filtered_ && kind != AdmissionKind::kCounter) {
      warning +=
          "the counts of keys that were not admitted are left out, because the table has no "
          "counter filter; ";
    }
    if (has_bloom_ && !KeepsBloom()) {
      warning +=
          "the counts of the Bloom filter are left out, because the table has another "
          "filter, seed or number of partitions; ";
    }
    const int64_t num_missing = num_kept_ - table_->size();
    if (num_missing > 0) {
      warning += std::to_string(num_missing) + " rows are left out, because the table holds " +
                 std::to_string(table_->size()) + "; ";
    }
    if (warning.empty()) return warning;
    return "restoring " + paths_[0] + ": " + warning.substr(0, warning.size() - 2);
  }

 private:
  // Slots of all files, in the order in which they are met.
  Status AddSlots(const std::string& path, Span<const Slot> slots) {
    for (const Slot& slot : slots) {
      const auto same = std::find_if(slots_.begin(), slots_.end(),
                                     [&](const Slot& other) { return other.name == slot.name; });
      if (same == slots_.end()) {
        slots_.push_back(slot);
      } else if (same->width != slot.width) {
        return InvalidArgument("slot ", slot.name, " has width ", slot.width, " in checkpoint ",
                               path, " and ", same->width, " in another file of it; give the ",
                               "files of one variable");
      }
    }
    return Status();
  }

  Status AddHeader(int64_t file, TableHeader header) {
    if (file == 0) {
      header_ = std::move(header);
      return Status();
    }
    if (!IsOfSameTable(header, header_)) {
      return InvalidArgument(
          "checkpoints ", paths_[0], " and ", paths_[file],
          " are of tables with different seeds, initializers or filters; give the ",
          "files of one variable");
    }
    header_.step = std::max(header_.step, header.step);
    return Status();
  }

  void CountKept(const RowLayout& layout, Span<const char> rows) {
    const int64_t row_bytes = layout.row_bytes();
    for (int64_t offset = 0; offset < rows.size; offset += row_bytes) {
      num_kept_ += filter_.Keeps(HeaderAt(rows.data + offset).key);
    }
  }

  // Whether the counters mean the same in this table.
  bool KeepsBloom() const {
    const AdmissionConfig& file = header_.admission;
    const AdmissionConfig& table = table_->config().admission;
    return has_bloom_ && table.kind == AdmissionKind::kBloom && paths_.size == filter_.count &&
           file.bloom_counters == table.bloom_counters && file.bloom_hashes == table.bloom_hashes &&
           CountingBloomFilter::CounterBytes(file.min_frequency) ==
               CountingBloomFilter::CounterBytes(table.min_frequency) &&
           header_.hash_seed == table_->config().initializer.seed &&
           header_.num_shards == table_->num_shards();
  }

  Status LoadRows(const RowLayout& layout, Span<const char> rows) {
    const int64_t max_rows = RestoredAtOnce(table_->config());
    RowDecoder decoder(layout, table_->layout());
    for (int64_t offset = 0; offset < rows.size; offset += layout.row_bytes()) {
      const char* row = rows.data + offset;
      if (!filter_.Keeps(HeaderAt(row).key)) continue;
      decoder.Add(row);
      if (decoder.content().keys.size < max_rows) continue;
      FE_RETURN_IF_ERROR(table_->Upsert(exec_, decoder.content()));
      decoder.Clear();
    }
    return table_->Upsert(exec_, decoder.content());
  }

  // No block has counters of two shards.
  Status LoadBloom(Span<const char> counters) {
    bloom_.insert(bloom_.end(), counters.begin(), counters.end());
    const auto bytes = static_cast<int64_t>(bloom_.size());
    if (bytes != bloom_shard_bytes_ || next_bloom_shard_ == table_->num_shards()) return Status();
    FE_RETURN_IF_ERROR(table_->RestoreBloomOfShard(next_bloom_shard_++, AsSpan(bloom_)));
    bloom_.clear();
    return Status();
  }

  Status LoadFiltered(Span<const RowHeader> keys) {
    FilteredKeys filtered;
    for (const RowHeader& header : keys) {
      if (!filter_.Keeps(header.key)) continue;
      filtered.keys.push_back(header.key);
      filtered.frequencies.push_back(header.frequency);
      filtered.versions.push_back(header.version);
    }
    return table_->RestoreFiltered(filtered);
  }

  const CpuExec& exec_;
  Span<const std::string> paths_;
  const PartitionFilter& filter_;
  EmbeddingTable* table_;
  TableHeader header_;
  std::vector<Slot> slots_;
  int64_t num_kept_ = 0;
  bool has_filtered_ = false;
  bool has_bloom_ = false;
  std::vector<char> bloom_;  // of the next shard, as far as it was read
  int64_t bloom_shard_bytes_ = 0;
  int64_t next_bloom_shard_ = 0;
};

Status OutOfMemory(const std::string& path) {
  return ResourceExhausted("no memory is left to save or restore checkpoint ", path);
}

}  // namespace

Status SaveTable(const EmbeddingTable& table, const std::string& path) {
  try {
    BlockWriter writer;
    FE_RETURN_IF_ERROR(writer.Open(path));
    FE_RETURN_IF_ERROR(TableSaver(table, &writer).Save());
    return writer.Commit();
  } catch (const std::bad_alloc&) {
    return OutOfMemory(path);
  }
}

Status CheckPartition(const PartitionFilter& partition) {
  if (partition.count < 1 || partition.index < 0 || partition.index >= partition.count) {
    return InvalidArgument("partition_index must be in [0, num_partitions), got ", partition.index,
                           " of ", partition.count);
  }
  switch (partition.strategy) {
    case PartitionStrategy::kHash:
    case PartitionStrategy::kModEv:
      return Status();
    case PartitionStrategy::kDiv:
    case PartitionStrategy::kMod:
      break;
  }
  return InvalidArgument(
      "partition_strategy div and mod spread the rows of a tensor, which an embedding variable "
      "does not have; use hash or mod_ev");
}

Status RestoreTable(const CpuExec& exec, Span<const std::string> paths,
                    const PartitionFilter& filter, EmbeddingTable* table, std::string* warning) {
  FE_RETURN_IF_ERROR(CheckPartition(filter));
  if (paths.empty()) return InvalidArgument("at least one checkpoint must be given, got none");
  TableRestorer restorer(exec, paths, filter, table);
  bool is_changed = false;
  const auto restore = [&]() -> Status {
    try {
      FE_RETURN_IF_ERROR(restorer.Check());
      is_changed = true;
      return restorer.Load();
    } catch (const std::bad_alloc&) {
      return OutOfMemory(paths[0]);
    }
  };
  const Status status = restore();
  if (!status.ok() && is_changed) table->Clear();
  if (status.ok() && warning != nullptr) *warning = restorer.Warning();
  return status;
}

}  // namespace fused_embedding
