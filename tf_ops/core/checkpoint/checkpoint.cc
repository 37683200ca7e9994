#include "tf_ops/core/checkpoint/checkpoint.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "tf_ops/core/base/secret.h"
#include "tf_ops/core/checkpoint/cold_files.h"
#include "tf_ops/core/checkpoint/format.h"
#include "tf_ops/core/checkpoint/held_files.h"
#include "tf_ops/core/checkpoint/restore_checks.h"
#include "tf_ops/core/checkpoint/row_decoder.h"
#include "tf_ops/core/checkpoint/table_file.h"
#include "tf_ops/core/storage/cold_store_library.h"
#include "tf_ops/core/table/keyed_rows.h"

namespace fused_embedding {
namespace {

// Whether these can be partitions of one variable, or saves of it; the latter ones have no matrix.
bool IsOfSameTable(const TableHeader& a, const TableHeader& b) {
  const InitializerConfig &i = a.initializer, &j = b.initializer;
  return i.kind == j.kind && i.a == j.a && i.b == j.b && i.seed == j.seed &&
         (i.matrix == j.matrix || a.link.continues != 0 || b.link.continues != 0) &&
         a.admission.kind == b.admission.kind && a.hash_seed == b.hash_seed &&
         a.num_shards == b.num_shards;
}

// Keys of which a later file of a series has said something.
class KeySet {
 public:
  Status Init() { return keys_.Init(); }
  bool Contains(int64_t key) const { return keys_.Find(key, keys_.Hash(key)) != kNoRow; }
  Status Add(int64_t key) {
    const uint64_t hash = keys_.Hash(key);
    if (keys_.Find(key, hash) != kNoRow) return Status();
    FE_RETURN_IF_ERROR(keys_.Reserve(1));
    keys_.Insert(key, hash);
    return Status();
  }

 private:
  KeyedRows keys_{Secret(), 0.8, int64_t{sizeof(RowHeader)}};
};

// A cold store's checkpoint, all of whose rows are kept.
struct AdoptableRows {
  const ColdFolder* folder = nullptr;
  int64_t num_rows = 0;
  std::vector<Slot> slots;
};

class TableRestorer {
 public:
  // `*is_changed` is set once the rows that the table had are gone.
  TableRestorer(const CpuExec& exec, const CheckpointFiles& files, const PartitionFilter& filter,
                EmbeddingTable* table, bool* is_changed)
      : exec_(exec),
        files_(files),
        filter_(filter),
        table_(table),
        is_changed_(is_changed),
        links_(static_cast<size_t>(files.paths.size)),
        num_kept_of_shard_(static_cast<size_t>(table->num_shards())) {}

  // Reads all files, and changes nothing.
  Status Check() {
    KeySet later;
    FE_RETURN_IF_ERROR(later.Init());
    for (int64_t link = files_.num_links - 1; link >= 0; --link) {
      for (int64_t i = 0; i < files_.num_partitions(); ++i) {
        FE_RETURN_IF_ERROR(CheckFile(link, i, &later));
      }
    }
    FE_RETURN_IF_ERROR(CheckSeries());
    if (KeepsBloom()) {
      FE_RETURN_IF_ERROR(bloom_blocks_.Check(files_.path(0, filter_.index), *table_));
    }
    return CheckFits(table_->config(), "checkpoint " + LastPath(0), AsSpan(num_kept_of_shard_));
  }

  Status Load() {
    FE_RETURN_IF_ERROR(ReplaceRows());
    FE_RETURN_IF_ERROR(table_->SetInitializer(header_.initializer));
    FE_RETURN_IF_ERROR(table_->EnsureSlots(AsSpan(slots_)));
    table_->set_step(step_);
    const bool keeps_bloom = KeepsBloom();
    bloom_shard_bytes_ = table_->BloomBytes() / table_->num_shards();
    KeySet later;
    FE_RETURN_IF_ERROR(later.Init());
    for (int64_t link = files_.num_links - 1; link >= 0; --link) {
      for (int64_t i = 0; i < files_.num_partitions(); ++i) {
        const bool takes_bloom = keeps_bloom && i == filter_.index;
        FE_RETURN_IF_ERROR(LoadFile(link, i, takes_bloom, &later));
      }
    }
    if (!keeps_bloom || next_bloom_shard_ == table_->num_shards()) return Status();
    return DataLoss("the Bloom filter of checkpoint ", files_.path(0, filter_.index),
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
    return "restoring " + LastPath(0) + ": " + warning.substr(0, warning.size() - 2);
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

  bool IsLast(int64_t link) const { return link == files_.num_links - 1; }
  const std::string& LastPath(int64_t partition) const {
    return files_.path(files_.num_links - 1, partition);
  }

  // Whether a key of this file is one to load. Files are read from the last one back, and a file
  // says something once of a key, but for keys that were removed and came back: those are removed
  // last. So the first that is read of a key counts.
  bool IsWanted(int64_t key, const KeySet& later) const {
    return filter_.Keeps(key) && (files_.num_links == 1 || !later.Contains(key));
  }

  // The keys of the first file need not be remembered: nothing is read after it.
  Status Remember(int64_t link, int64_t key, KeySet* later) const {
    return link > 0 && filter_.Keeps(key) ? later->Add(key) : Status();
  }

  Status CheckFile(int64_t link, int64_t partition, KeySet* later) {
    const std::string& path = files_.path(link, partition);
    TableFileVisitor visitor = RememberingVisitor(link, later);
    visitor.slots = [&](Span<const Slot> slots) { return AddSlots(path, slots); };
    visitor.rows = [&](const RowLayout& layout, Span<const char> rows) {
      return CheckRows(link, layout, rows, later);
    };
    visitor.cold_files = [&](const RowLayout& layout, Span<const ColdFile> files) {
      return CheckColdFiles(link, path, layout, files, later);
    };
    visitor.bloom = [&](Span<const char> counters) {
      has_bloom_ = has_bloom_ || !counters.empty();
      if (partition == filter_.index) bloom_blocks_.Add(counters);
      return Status();
    };
    visitor.bloom_lines = [&](Span<const BloomLine> lines) {
      if (partition == filter_.index) bloom_blocks_.AddLines(lines);
      return Status();
    };
    TableHeader header;
    FE_RETURN_IF_ERROR(ReadTableFile(path, &table_->config().layout, visitor, &header, &held_));
    if (IsLast(link)) step_ = std::max(step_, header.step);
    links_[static_cast<size_t>(link * files_.num_partitions() + partition)] = header.link;
    return AddHeader(path, std::move(header));
  }

  Status CheckRows(int64_t link, const RowLayout& layout, Span<const char> rows, KeySet* later) {
    for (int64_t offset = 0; offset < rows.size; offset += layout.row_bytes()) {
      const int64_t key = HeaderAt(rows.data + offset).key;
      if (IsWanted(key, *later)) {
        ++num_kept_;
        ++num_kept_of_shard_[static_cast<size_t>(table_->ShardOf(key))];
      }
      FE_RETURN_IF_ERROR(Remember(link, key, later));
    }
    return Status();
  }

  Status CheckColdFiles(int64_t link, const std::string& path, const RowLayout& layout,
                        Span<const ColdFile> files, KeySet* later) {
    cold_folders_.push_back(std::make_unique<ColdFolder>());
    ColdFolder* folder = cold_folders_.back().get();
    FE_RETURN_IF_ERROR(folder->Make(path, files, &held_));
    const int64_t num_kept = num_kept_;
    int64_t num_rows = 0;
    FE_RETURN_IF_ERROR(ReadColdRows(*folder, layout, OpenStore(),
                                    [&](const RowLayout& of_rows, Span<const char> rows) {
                                      num_rows += rows.size / of_rows.row_bytes();
                                      return CheckRows(link, of_rows, rows, later);
                                    }));
    if (num_kept_ - num_kept == num_rows) adoptable_ = {folder, num_rows, layout.slots};
    return Status();
  }

  // Of cold files: as the table's own, or RocksDB's.
  StorageConfig::Open OpenStore() const {
    const StorageConfig& storage = table_->config().storage;
    return storage.open ? storage.open : StorageConfig::Open(OpenRocksDb);
  }

  // Whether the table's cold store can begin with the files of the checkpoint that have all rows,
  // instead of taking each row.
  bool IsAdoptable() const {
    return table_->config().storage.open && files_.num_links == 1 && adoptable_.folder != nullptr &&
           adoptable_.num_rows == num_kept_ && adoptable_.slots == slots_;
  }

  Status Adopt() {
    const Status status = adoptable_.folder->Explain(
        table_->AdoptCold(adoptable_.folder->path(), AsSpan(slots_), AsSpan(num_kept_of_shard_)));
    is_adopted_ = status.ok();
    if (is_adopted_) *is_changed_ = true;
    return status;
  }

  // By those of a cold store's checkpoint, or by none. An error of Adopt leaves the rows that the
  // table has, unless the disk has no room for both: files are copied from another file system.
  Status ReplaceRows() {
    if (IsAdoptable()) {
      const Status adopted = Adopt();
      if (adopted.code() != StatusCode::kResourceExhausted) return adopted;
    }
    FE_RETURN_IF_ERROR(table_->Clear());
    *is_changed_ = true;
    return IsAdoptable() ? Adopt() : Status();
  }

  Status LoadColdFiles(int64_t link, const RowLayout& layout, KeySet* later) {
    if (is_adopted_) return Status();
    if (next_cold_folder_ == cold_folders_.size()) {
      return DataLoss("checkpoint ", LastPath(0), " was changed while it was restored");
    }
    return ReadColdRows(*cold_folders_[next_cold_folder_++], layout, OpenStore(),
                        [&](const RowLayout& of_rows, Span<const char> rows) {
                          return LoadRows(link, of_rows, rows, later);
                        });
  }

  // Remembers which keys a file has counts for, and which it removes.
  TableFileVisitor RememberingVisitor(int64_t link, KeySet* later) {
    TableFileVisitor visitor;
    visitor.filtered = [=](Span<const RowHeader> keys) {
      has_filtered_ = has_filtered_ || !keys.empty();
      for (const RowHeader& header : keys) FE_RETURN_IF_ERROR(Remember(link, header.key, later));
      return Status();
    };
    visitor.removed = [=](Span<const int64_t> keys) {
      for (const int64_t key : keys) FE_RETURN_IF_ERROR(Remember(link, key, later));
      return Status();
    };
    return visitor;
  }

  // The header that counts is one with an initializer's matrix.
  Status AddHeader(const std::string& path, TableHeader header) {
    if (header_path_.empty()) {
      header_path_ = path;
      header_ = std::move(header);
      return Status();
    }
    if (!IsOfSameTable(header, header_)) {
      return InvalidArgument(
          "checkpoints ", header_path_, " and ", path,
          " are of tables with different seeds, initializers or filters; give the ",
          "files of one variable");
    }
    if (header_.link.continues != 0) header_ = std::move(header);
    return Status();
  }

  // Whether each file continues the one before it.
  Status CheckSeries() const {
    for (int64_t link = 0; link < files_.num_links; ++link) {
      for (int64_t i = 0; i < files_.num_partitions(); ++i) {
        const Link& own = LinkOf(link, i);
        const std::string& path = files_.path(link, i);
        if (link == 0 && own.continues != 0) {
          return InvalidArgument("checkpoint ", path,
                                 " is an incremental save, which is of no use without the saves ",
                                 "that it continues; give those before it, the full one first");
        }
        if (link == 0 || (own.continues != 0 && own.continues == LinkOf(link - 1, i).name)) {
          continue;
        }
        return InvalidArgument("checkpoint ", path, " does not continue checkpoint ",
                               files_.path(link - 1, i),
                               "; give a full save and each incremental one after it, in order");
      }
    }
    return Status();
  }

  const Link& LinkOf(int64_t link, int64_t partition) const {
    return links_[static_cast<size_t>(link * files_.num_partitions() + partition)];
  }

  Status LoadFile(int64_t link, int64_t partition, bool takes_bloom, KeySet* later) {
    TableFileVisitor visitor = RememberingVisitor(link, later);
    visitor.rows = [&](const RowLayout& layout, Span<const char> rows) {
      return LoadRows(link, layout, rows, later);
    };
    visitor.cold_files = [&](const RowLayout& layout, Span<const ColdFile> /*files*/) {
      return LoadColdFiles(link, layout, later);
    };
    visitor.filtered = [&](Span<const RowHeader> keys) { return LoadFiltered(link, keys, later); };
    visitor.bloom = [&](Span<const char> counters) {
      return takes_bloom ? LoadBloom(counters) : Status();
    };
    visitor.bloom_lines = [&](Span<const BloomLine> lines) {
      return takes_bloom ? LoadBloomLines(lines) : Status();
    };
    TableHeader header;
    return ReadTableFile(files_.path(link, partition), &table_->config().layout, visitor, &header,
                         &held_);
  }

  // Whether the counters mean the same in this table.
  bool KeepsBloom() const {
    const AdmissionConfig& file = header_.admission;
    const AdmissionConfig& table = table_->config().admission;
    return has_bloom_ && table.kind == AdmissionKind::kBloom &&
           files_.num_partitions() == filter_.count &&
           file.bloom_counters == table.bloom_counters && file.bloom_hashes == table.bloom_hashes &&
           CountingBloomFilter::CounterBytes(file.min_frequency) ==
               CountingBloomFilter::CounterBytes(table.min_frequency) &&
           header_.hash_seed == table_->config().initializer.seed &&
           header_.num_shards == table_->num_shards();
  }

  Status LoadRows(int64_t link, const RowLayout& layout, Span<const char> rows, KeySet* later) {
    const int64_t max_rows = RestoredAtOnce(table_->config());
    RowDecoder decoder(layout, table_->layout());
    for (int64_t offset = 0; offset < rows.size; offset += layout.row_bytes()) {
      const char* row = rows.data + offset;
      const int64_t key = HeaderAt(row).key;
      if (!IsWanted(key, *later)) continue;
      FE_RETURN_IF_ERROR(Remember(link, key, later));
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
    FE_RETURN_IF_ERROR(table_->MergeBloomOfShard(next_bloom_shard_++, 0, AsSpan(bloom_)));
    bloom_.clear();
    return Status();
  }

  Status LoadBloomLines(Span<const BloomLine> lines) {
    constexpr int64_t kLineBytes = sizeof(BloomLine::counters);
    const int64_t num_lines = bloom_shard_bytes_ / kLineBytes;  // of a shard
    for (const BloomLine& line : lines) {
      const int64_t shard = num_lines == 0 ? -1 : line.number / num_lines;
      if (line.number < 0 || shard < 0 || shard >= table_->num_shards()) {
        return DataLoss("checkpoint ", LastPath(filter_.index),
                        " has counters of a Bloom filter of another size; restore another one");
      }
      FE_RETURN_IF_ERROR(table_->MergeBloomOfShard(shard, line.number % num_lines * kLineBytes,
                                                   {line.counters, kLineBytes}));
    }
    return Status();
  }

  Status LoadFiltered(int64_t link, Span<const RowHeader> keys, KeySet* later) {
    FilteredKeys filtered;
    for (const RowHeader& header : keys) {
      if (!IsWanted(header.key, *later)) continue;
      FE_RETURN_IF_ERROR(Remember(link, header.key, later));
      filtered.Add(header);
    }
    return table_->RestoreFiltered(filtered);
  }

  const CpuExec& exec_;
  const CheckpointFiles& files_;
  const PartitionFilter& filter_;
  EmbeddingTable* table_;
  bool* is_changed_;
  TableHeader header_;
  std::string header_path_;
  std::vector<Link> links_;  // of all files
  int64_t step_ = 0;
  std::vector<Slot> slots_;
  int64_t num_kept_ = 0;
  std::vector<int64_t> num_kept_of_shard_;
  HeldFiles held_;
  std::vector<std::unique_ptr<ColdFolder>> cold_folders_;  // in the order of reading
  size_t next_cold_folder_ = 0;
  AdoptableRows adoptable_;
  bool is_adopted_ = false;
  BloomBlocks bloom_blocks_;
  bool has_filtered_ = false;
  bool has_bloom_ = false;
  std::vector<char> bloom_;  // of the next shard, as far as it was read
  int64_t bloom_shard_bytes_ = 0;
  int64_t next_bloom_shard_ = 0;
};

}  // namespace

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

Status RestoreTable(const CpuExec& exec, const CheckpointFiles& files,
                    const PartitionFilter& filter, EmbeddingTable* table, std::string* warning) {
  FE_RETURN_IF_ERROR(CheckPartition(filter));
  if (files.paths.empty())
    return InvalidArgument("at least one checkpoint must be given, got none");
  if (files.num_links < 1 || files.paths.size % files.num_links != 0) {
    return InvalidArgument("each of ", files.num_links,
                           " saves of a series must have the same number of files, got ",
                           files.paths.size, " in all");
  }
  bool is_changed = false;
  const auto restore = [&]() -> Status {
    try {
      TableRestorer restorer(exec, files, filter, table, &is_changed);
      FE_RETURN_IF_ERROR(restorer.Check());
      FE_RETURN_IF_ERROR(restorer.Load());
      if (warning != nullptr) *warning = restorer.Warning();
      return Status();
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("no memory is left to restore checkpoint ", files.paths[0]);
    }
  };
  const Status status = restore();
  return status.ok() || !is_changed ? status : EmptyTableAfter(status, table);
}

}  // namespace fused_embedding
