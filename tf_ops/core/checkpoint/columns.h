// The content of a table as columns, one array for each thing: what a tensor checkpoint holds.

#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_COLUMNS_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/checkpoint/checkpoint.h"
#include "tf_ops/core/table/embedding_table.h"

namespace fused_embedding {

// A copy of a table, each shard at one moment.
struct TableCopy {
  RowLayout layout;
  std::vector<char> rows;      // num_rows * layout.row_bytes()
  std::vector<int64_t> order;  // rows by ascending key
  FilteredKeys filtered;       // by ascending key
  std::vector<char> bloom;
  InitializerConfig initializer;
  int64_t step = 0;

  int64_t num_rows() const { return static_cast<int64_t>(order.size()); }
};

// Where the columns of a copy go; [n] each, by ascending key.
struct TableColumns {
  Span<int64_t> keys;
  char* values = nullptr;  // [n, dim]
  char* slots = nullptr;   // [n, slot_width]
  Span<int64_t> frequencies;
  Span<int64_t> versions;
};

// Needs memory for a second copy of the table.
Status CopyTable(const EmbeddingTable& table, TableCopy* copy);
void SplitColumns(const TableCopy& copy, const TableColumns& columns);

// The columns of a checkpoint. `rows.slots` is [n, sum of the slots' widths].
struct TableContent {
  EmbeddingTable::Content rows;
  std::vector<Slot> slots;
  FilteredKeys filtered;
  Span<const char> bloom;
  InitializerConfig initializer;
  int64_t step = 0;
};

// Replaces the table's content by what `partition` keeps of `content`.
Status ReplaceContent(const CpuExec& exec, const TableContent& content,
                      const PartitionFilter& partition, EmbeddingTable* table);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_COLUMNS_H_
