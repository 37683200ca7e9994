#include "tf_ops/core/checkpoint/table_file.h"

#include <algorithm>
#include <new>
#include <unordered_set>
#include <utility>

#include "tf_ops/core/checkpoint/cold_files.h"
#include "tf_ops/core/checkpoint/reader.h"
#include "tf_ops/core/storage/cold_store_library.h"
#include "tf_ops/core/table/table_config.h"

namespace fused_embedding {
namespace {

// One file on its way through a visitor.
class TableFile {
 public:
  TableFile(const std::string& path, const RowLayout* wanted, const TableFileVisitor& visitor,
            TableHeader* header)
      : path_(path), wanted_(wanted), visitor_(visitor), header_(header) {}

  Status Read(HeldFiles* held) {
    FE_RETURN_IF_ERROR(reader_.Open(path_, held));
    Block block;
    FE_RETURN_IF_ERROR(reader_.Next(&block));
    if (block.type != BlockType::kTable) {
      return reader_.Damaged("a table is not described first");
    }
    FE_RETURN_IF_ERROR(ReadTable(block.payload));
    do {
      FE_RETURN_IF_ERROR(reader_.Next(&block));
      if (block.type != BlockType::kColdFile) FE_RETURN_IF_ERROR(ReadColdFiles());
      FE_RETURN_IF_ERROR(Visit(block));
    } while (block.type != BlockType::kFooter);
    return Status();
  }

 private:
  Status Visit(const Block& block) {
    switch (block.type) {
      case BlockType::kTable:
        return reader_.Damaged("a table is described twice");
      case BlockType::kMatrix:
        return ReadMatrix(block.payload);
      case BlockType::kSlots:
        return ReadSlots(block.payload);
      case BlockType::kRows:
        return ReadRows(block.payload);
      case BlockType::kFiltered:
        return ReadFiltered(block.payload);
      case BlockType::kBloom:
        return ReadBloom(block.payload);
      case BlockType::kFooter:
        return ReadFooter(block.payload);
      case BlockType::kRemoved:
        return ReadRemoved(block.payload);
      case BlockType::kBloomLines:
        return ReadBloomLines(block.payload);
      case BlockType::kLink:
        return Explain(DecodeLink(block.payload, &header_->link));
      case BlockType::kColdFile:
        cold_files_.emplace_back();
        return Explain(DecodeColdFile(block.payload, &cold_files_.back()));
    }
    return reader_.Damaged("a block is of no known type");
  }

  // The reason that decoding gave, with the file.
  Status Explain(const Status& status) const {
    return status.ok() ? status : reader_.Damaged(status.message());
  }

  Status ReadTable(Span<const char> payload) {
    FE_RETURN_IF_ERROR(Explain(DecodeTable(payload, header_)));
    layout_.dim = header_->dim;
    layout_.value_type = header_->value_type;
    if (layout_.dim < 1 || layout_.dim > kMaxDim) return reader_.Damaged("its dim makes no sense");
    if (wanted_ == nullptr) return Status();
    if (layout_.dim == wanted_->dim && layout_.value_type == wanted_->value_type) return Status();
    return InvalidArgument("checkpoint ", path_, " is of a table with embedding_dim ", layout_.dim,
                           " and dtype ", ValueTypeName(layout_.value_type),
                           ", but the variable has embedding_dim ", wanted_->dim, " and dtype ",
                           ValueTypeName(wanted_->value_type),
                           "; make the variable as it was, or restore another checkpoint");
  }

  Status ReadMatrix(Span<const char> payload) {
    totals_.matrix_bytes += payload.size;
    std::vector<char>& matrix = header_->initializer.matrix;
    matrix.insert(matrix.end(), payload.begin(), payload.end());
    return Status();
  }

  Status ReadSlots(Span<const char> payload) {
    FE_RETURN_IF_ERROR(Explain(DecodeSlots(payload, &layout_.slots)));
    return visitor_.slots
               ? visitor_.slots({layout_.slots.data(), static_cast<int64_t>(layout_.slots.size())})
               : Status();
  }

  Status ReadRows(Span<const char> payload) {
    if (payload.size % layout_.row_bytes() != 0) return reader_.Damaged("a row is incomplete");
    totals_.num_rows += payload.size / layout_.row_bytes();
    return visitor_.rows ? visitor_.rows(layout_, payload) : Status();
  }

  // Once all of them are known.
  Status ReadColdFiles() {
    if (cold_files_.empty()) return Status();
    const std::vector<ColdFile> files = std::move(cold_files_);
    cold_files_.clear();
    if (visitor_.cold_files) return visitor_.cold_files(layout_, AsSpan(files));
    ColdFolder folder;
    FE_RETURN_IF_ERROR(folder.Make(path_, AsSpan(files)));
    return ReadColdRows(folder, layout_, OpenRocksDb,
                        [&](const RowLayout& layout, Span<const char> rows) {
                          return visitor_.rows ? visitor_.rows(layout, rows) : Status();
                        });
  }

  Status ReadFiltered(Span<const char> payload) {
    constexpr int64_t kBytes = sizeof(RowHeader);
    if (payload.size % kBytes != 0) return reader_.Damaged("a count is incomplete");
    const int64_t n = payload.size / kBytes;
    totals_.num_filtered += n;
    // A block begins where malloc has put it: aligned for any type.
    return visitor_.filtered
               ? visitor_.filtered({reinterpret_cast<const RowHeader*>(payload.data), n})
               : Status();
  }

  Status ReadBloom(Span<const char> payload) {
    totals_.bloom_bytes += payload.size;
    return visitor_.bloom ? visitor_.bloom(payload) : Status();
  }

  Status ReadRemoved(Span<const char> payload) {
    constexpr int64_t kBytes = sizeof(int64_t);
    if (payload.size % kBytes != 0) return reader_.Damaged("a removed key is incomplete");
    const int64_t n = payload.size / kBytes;
    totals_.num_removed += n;
    return visitor_.removed ? visitor_.removed({reinterpret_cast<const int64_t*>(payload.data), n})
                            : Status();
  }

  Status ReadBloomLines(Span<const char> payload) {
    constexpr int64_t kBytes = sizeof(BloomLine);
    if (payload.size % kBytes != 0) return reader_.Damaged("a line of counters is incomplete");
    totals_.bloom_bytes += payload.size;
    return visitor_.bloom_lines
               ? visitor_.bloom_lines(
                     {reinterpret_cast<const BloomLine*>(payload.data), payload.size / kBytes})
               : Status();
  }

  Status ReadFooter(Span<const char> payload) {
    Totals totals;
    FE_RETURN_IF_ERROR(Explain(DecodeTotals(payload, &totals)));
    if (!(totals == totals_)) return reader_.Damaged("its totals are not those of its blocks");
    if (header_->link.continues != 0) return Status();  // its matrix is in another file
    return Explain(CheckInitializer(header_->initializer, layout_));
  }

  const std::string& path_;
  const RowLayout* wanted_;  // null: any
  const TableFileVisitor& visitor_;
  TableHeader* header_;
  BlockReader reader_;
  RowLayout layout_;  // of the rows that come
  Totals totals_;
  std::vector<ColdFile> cold_files_;
};

}  // namespace

const char* ValueTypeName(ValueType type) {
  switch (type) {
    case ValueType::kFloat:
      return "float32";
    case ValueType::kDouble:
      return "float64";
    case ValueType::kHalf:
      return "float16";
    case ValueType::kBFloat16:
      return "bfloat16";
  }
  return "unknown";
}

Status ReadTableFile(const std::string& path, const RowLayout* layout,
                     const TableFileVisitor& visitor, TableHeader* header, HeldFiles* held) {
  try {
    *header = TableHeader();
    return TableFile(path, layout, visitor, header).Read(held);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate the memory to read checkpoint ", path);
  }
}

Status ReadLink(const std::string& path, Link* link) {
  BlockReader reader;
  Block block;
  FE_RETURN_IF_ERROR(reader.Open(path));
  FE_RETURN_IF_ERROR(reader.Next(&block));
  FE_RETURN_IF_ERROR(reader.Next(&block));
  if (block.type != BlockType::kLink) {
    return MakeStatus(StatusCode::kFailedPrecondition, "checkpoint ", path,
                      " is not of a series of incremental saves, so that none can continue it; "
                      "save all of the table");
  }
  const Status status = DecodeLink(block.payload, link);
  return status.ok() ? status : reader.Damaged(status.message());
}

Status ReadRows(const std::string& path, const RowLayout& layout, FileRows* rows) {
  TableFileVisitor visitor;
  visitor.rows = [&](const RowLayout& file, Span<const char> bytes) {
    for (int64_t row = 0; row < bytes.size; row += file.row_bytes()) {
      rows->keys.push_back(HeaderAt(bytes.data + row).key);
      const char* value = bytes.data + row + file.value_offset();
      rows->values.insert(rows->values.end(), value, value + file.value_bytes());
    }
    return Status();
  };
  visitor.removed = [&](Span<const int64_t> keys) {
    rows->removed_keys.insert(rows->removed_keys.end(), keys.begin(), keys.end());
    return Status();
  };
  *rows = FileRows();
  TableHeader header;
  FE_RETURN_IF_ERROR(ReadTableFile(path, &layout, visitor, &header));
  rows->is_incremental = header.link.continues != 0;
  rows->seed = header.initializer.seed;
  try {
    const std::unordered_set<int64_t> present(rows->keys.begin(), rows->keys.end());
    std::vector<int64_t>& removed = rows->removed_keys;
    removed.erase(std::remove_if(removed.begin(), removed.end(),
                                 [&](int64_t key) { return present.count(key) > 0; }),
                  removed.end());
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate the memory to read checkpoint ", path);
  }
  return Status();
}

}  // namespace fused_embedding
