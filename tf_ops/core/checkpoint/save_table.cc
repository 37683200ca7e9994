#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tf_ops/core/base/secret.h"
#include "tf_ops/core/checkpoint/checkpoint.h"
#include "tf_ops/core/checkpoint/cold_files.h"
#include "tf_ops/core/checkpoint/format.h"
#include "tf_ops/core/checkpoint/new_files.h"
#include "tf_ops/core/checkpoint/table_file.h"
#include "tf_ops/core/checkpoint/writer.h"
#include "tf_ops/core/storage/folder_lock.h"

namespace fused_embedding {
namespace {

// What a reader keeps in memory; large enough that a block's header costs nothing.
constexpr int64_t kBlockBytes = int64_t{4} << 20;

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

// The name of a folder beside the table's file `path` that no other save has.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& path)
      : path_(path + ".rows-" + std::to_string(Secret())) {}
  ~TemporaryFolder() {
    const Status is_removed = RemoveTree(path_);  // it has but links and copies
    static_cast<void>(is_removed);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

// Gives the rows of a shard that are to be saved.
using CopyShard = std::function<Status(int64_t shard, ShardCopy* copy)>;

class TableSaver {
 public:
  TableSaver(const EmbeddingTable& table, const Link& link, BlockWriter* writer)
      : table_(table), link_(link), writer_(writer) {}

  // The rows of a table above a cold store as files beside `path`, each added to `made`.
  void SetColdFiles(const std::string& path, NewFiles* made) {
    path_ = path;
    made_ = made;
  }

  Status Save(const CopyShard& copy_shard) {
    FE_RETURN_IF_ERROR(SaveHeader());
    if (made_ != nullptr) FE_RETURN_IF_ERROR(SaveColdFiles());
    for (int64_t shard = 0; shard < table_.num_shards(); ++shard) {
      ShardCopy copy;
      FE_RETURN_IF_ERROR(copy_shard(shard, &copy));
      FE_RETURN_IF_ERROR(SaveShard(copy));
    }
    if (made_ == nullptr) FE_RETURN_IF_ERROR(SaveCold());
    if (link_.continues == 0) FE_RETURN_IF_ERROR(SaveBloom());
    return writer_->Write(BlockType::kFooter, AsSpan(EncodeTotals(totals_)));
  }

 private:
  Status SaveHeader() {
    TableHeader header;
    header.value_type = table_.config().layout.value_type;
    header.dim = table_.config().layout.dim;
    header.initializer = table_.initializer();
    if (link_.continues != 0) header.initializer.matrix.clear();
    header.matrix_bytes = static_cast<int64_t>(header.initializer.matrix.size());
    header.admission = table_.config().admission;
    header.num_shards = table_.num_shards();
    header.hash_seed = table_.config().initializer.seed;
    header.step = table_.step();
    totals_.matrix_bytes = header.matrix_bytes;
    FE_RETURN_IF_ERROR(writer_->Write(BlockType::kTable, AsSpan(EncodeTable(header))));
    if (link_.name != 0) {
      FE_RETURN_IF_ERROR(writer_->Write(BlockType::kLink, AsSpan(EncodeLink(link_))));
    }
    return WriteInPieces(BlockType::kMatrix, AsSpan(header.initializer.matrix), 1, writer_);
  }

  Status SaveShard(const ShardCopy& copy) {
    FE_RETURN_IF_ERROR(SaveSlots(copy.layout));
    FE_RETURN_IF_ERROR(SaveRows(copy.layout, AsSpan(copy.rows)));
    FE_RETURN_IF_ERROR(SaveFiltered(copy.filtered));
    totals_.num_removed += static_cast<int64_t>(copy.removed.size());
    FE_RETURN_IF_ERROR(WriteAll(BlockType::kRemoved, copy.removed));
    constexpr int64_t kLineBytes = sizeof(BloomLine);
    totals_.bloom_bytes += static_cast<int64_t>(copy.bloom_lines.size()) * kLineBytes;
    return WriteAll(BlockType::kBloomLines, copy.bloom_lines);
  }

  Status SaveColdFiles() {
    const TemporaryFolder folder(path_);
    RowLayout layout;
    std::vector<ColdFile> files;
    FE_RETURN_IF_ERROR(table_.CheckpointCold(folder.path(), &layout));
    FE_RETURN_IF_ERROR(TakeApart(folder.path(), path_, made_, &files));
    FE_RETURN_IF_ERROR(SaveSlots(layout));
    for (const ColdFile& file : files) {
      FE_RETURN_IF_ERROR(writer_->Write(BlockType::kColdFile, AsSpan(EncodeColdFile(file))));
    }
    return Status();
  }

  Status SaveCold() {
    return table_.CopyCold([&](const RowLayout& layout, Span<const char> rows) {
      FE_RETURN_IF_ERROR(SaveSlots(layout));
      return SaveRows(layout, rows);
    });
  }

  Status SaveSlots(const RowLayout& layout) {
    if (layout.slots == slots_) return Status();
    slots_ = layout.slots;
    return writer_->Write(BlockType::kSlots, AsSpan(EncodeSlots(slots_)));
  }

  Status SaveRows(const RowLayout& layout, Span<const char> rows) {
    totals_.num_rows += rows.size / layout.row_bytes();
    return WriteInPieces(BlockType::kRows, rows, layout.row_bytes(), writer_);
  }

  template <typename T>
  Status WriteAll(BlockType type, const std::vector<T>& items) {
    constexpr int64_t kBytes = sizeof(T);
    return WriteInPieces(
        type,
        {reinterpret_cast<const char*>(items.data()), static_cast<int64_t>(items.size()) * kBytes},
        kBytes, writer_);
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
  const Link link_;
  BlockWriter* writer_;
  std::string path_;
  NewFiles* made_ = nullptr;  // null: all rows go to the writer
  std::vector<Slot> slots_;   // of the rows that come
  Totals totals_;
};

// Writes a file with `save`, and leaves none that only an earlier one of that name needed.
Status Replace(const std::string& path,
               const std::function<Status(BlockWriter* writer, NewFiles* made)>& save) {
  try {
    const std::vector<std::string> replaced = ColdPathsOf(path);
    NewFiles made;
    BlockWriter writer;
    FE_RETURN_IF_ERROR(writer.Open(path));
    FE_RETURN_IF_ERROR(save(&writer, &made));
    FE_RETURN_IF_ERROR(writer.Place());
    made.Keep();  // `path` needs them now, whatever follows
    FE_RETURN_IF_ERROR(writer.Commit());
    for (const std::string& old : replaced) unlink(old.c_str());
    return Status();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory is left to save checkpoint ", path);
  }
}

CopyShard AllOf(const EmbeddingTable& table) {
  return [&](int64_t shard, ShardCopy* copy) {
    return table.CopyShard(shard, &copy->layout, &copy->rows, &copy->filtered);
  };
}

// Another name for a file.
Status MakeHardLink(const std::string& from, const std::string& to, NewFiles* made) {
  const bool is_gone = unlink(to.c_str()) == 0 || errno == ENOENT;
  if (is_gone && link(from.c_str(), to.c_str()) == 0) {
    made->Add(to);
    return Status();
  }
  const int error = errno;
  const bool has_none = error == EPERM || error == EOPNOTSUPP || error == ENOSYS;
  return MakeStatus(has_none ? StatusCode::kUnimplemented : StatusCode::kFailedPrecondition,
                    "cannot make ", to, " a hard link of ", from, ": ",
                    std::generic_category().message(error),
                    "; incremental saves need a file system with hard links, and the files that "
                    "they continue");
}
uint64_t NewName() {
  const uint64_t name = Secret();
  return name == 0 ? 1 : name;
}

// Whether each file of an incremental save has a name of its own, and none replaces an older one.
Status CheckPaths(const Increment& increment) {
  const Span<const std::string>& base = increment.base_paths;
  const Span<const std::string>& links = increment.link_paths;
  if (base.size != links.size) {
    return InvalidArgument("link_paths must have one path for each of ", base.size,
                           " base_paths, got ", links.size);
  }
  for (const std::string& link : links) {
    FE_RETURN_IF_ERROR(CheckFileName(link));
    if (std::count(links.begin(), links.end(), link) == 1) continue;
    return InvalidArgument("link_paths must differ, but several are ", link);
  }
  for (int64_t i = 0; i < base.size; ++i) {
    if (base[i] != links[i] && base[i] != increment.path && links[i] != increment.path) continue;
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "an incremental save cannot replace the checkpoint that it continues, ",
                      base[i], "; save to another path, or all of the table");
  }
  return Status();
}

}  // namespace

Status SaveTable(const EmbeddingTable& table, const std::string& path, bool as_one_file) {
  return Replace(path, [&](BlockWriter* writer, NewFiles* made) {
    TableSaver saver(table, Link(), writer);
    if (table.config().storage.open && !as_one_file) saver.SetColdFiles(path, made);
    return saver.Save(AllOf(table));
  });
}

Status SaveIncrement(const Increment& increment, EmbeddingTable* table) {
  FE_RETURN_IF_ERROR(CheckPaths(increment));
  const Span<const std::string>& base = increment.base_paths;
  const Span<const std::string>& links = increment.link_paths;
  if (table->config().storage.open) {
    return MakeStatus(StatusCode::kUnimplemented, "a table above a cold store has no incremental ",
                      "saves: save all of it, as to ", increment.path);
  }
  const std::unique_lock<std::mutex> lock = table->LockSaves();
  Link link{NewName(), 0};
  if (base.empty()) {
    table->StartChanges(link.name);
    return Replace(increment.path, [&](BlockWriter* writer, NewFiles* /*made*/) {
      return TableSaver(*table, link, writer).Save(AllOf(*table));
    });
  }
  Link before;
  FE_RETURN_IF_ERROR(ReadLink(base[base.size - 1], &before));
  link.continues = before.name;
  FE_RETURN_IF_ERROR(table->ContinueChanges(before.name));
  FE_RETURN_IF_ERROR(Replace(increment.path, [&](BlockWriter* writer, NewFiles* made) {
    for (int64_t i = 0; i < base.size; ++i) {
      FE_RETURN_IF_ERROR(MakeHardLink(base[i], links[i], made));
    }
    return TableSaver(*table, link, writer).Save([&](int64_t shard, ShardCopy* copy) {
      return table->CopyChanges(shard, copy);
    });
  }));
  table->FinishChanges(link.name);
  return Status();
}

}  // namespace fused_embedding
