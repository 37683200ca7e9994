#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_TABLE_FILE_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_TABLE_FILE_H_

#include <functional>
#include <string>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/checkpoint/format.h"
#include "tf_ops/core/checkpoint/held_files.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

// Who is given the blocks of a file, as they are read. Anything may be left out.
struct TableFileVisitor {
  std::function<Status(Span<const Slot> slots)> slots;
  // A block of whole rows in that layout.
  std::function<Status(const RowLayout& layout, Span<const char> rows)> rows;
  std::function<Status(Span<const RowHeader> keys)> filtered;
  std::function<Status(Span<const char> counters)> bloom;
  std::function<Status(Span<const int64_t> keys)> removed;
  std::function<Status(Span<const BloomLine> lines)> bloom_lines;
  // All rows, of that layout, as files of a cold store. Left out: they are read with RocksDB, and
  // given to `rows`.
  std::function<Status(const RowLayout& layout, Span<const ColdFile> files)> cold_files;
};

// Reads a file from its first to its last byte and checks it. `header` has its matrix afterwards.
// InvalidArgument unless it is of a table with rows of `layout`, slots aside; before any visit.
// Null: of any table. `held`, if given, keeps the file open for another read.
Status ReadTableFile(const std::string& path, const RowLayout* layout,
                     const TableFileVisitor& visitor, TableHeader* header,
                     HeldFiles* held = nullptr);

// The place of a file in its series of saves, without reading all of it. FailedPrecondition for a
// file that no other can continue.
Status ReadLink(const std::string& path, Link* link);

// The rows of a file: of an incremental save those that changed.
struct FileRows {
  bool is_incremental = false;
  uint64_t seed = 0;  // of the initializer: restored with a table, whatever the table is called
  std::vector<int64_t> keys;
  std::vector<char> values;           // [n, dim]
  std::vector<int64_t> removed_keys;  // without a row; none of `keys`
};
// Errors as ReadTableFile.
Status ReadRows(const std::string& path, const RowLayout& layout, FileRows* rows);

// "float32", as TensorFlow and numpy say.
const char* ValueTypeName(ValueType type);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_TABLE_FILE_H_
