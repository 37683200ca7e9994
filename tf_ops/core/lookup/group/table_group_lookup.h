// A grouped lookup in tables that are read by key. Each table is searched once for each of its
// distinct keys. The rows found, without gaps, are the table of a grouped lookup by position.
//
//   columns of one table: ids [7, -1, 3] of rows [0, 0, 2], default_id 5; and ids [3, 9]
//   keys [7, 3, 5, 9]   counts [1, 2, 0, 1]   positions [0, -1, 1] and [1, 3]
//   default_positions 2 and -1
//
// Keys are in the order of their first occurrence, column after column; a default id follows the
// ids of its column. A default id is a key only if there is a row to fill, and filling does not
// count as an occurrence. Where ids are row numbers (GroupColumn::ids_are_keys is false), an empty
// row without a default id adds row 0, whose gradient is zero, as in a lookup of ordinary tables.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_TABLE_GROUP_LOOKUP_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_TABLE_GROUP_LOOKUP_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/core/lookup/group/group_keys.h"
#include "tf_ops/core/lookup/stages/unique.h"
#include "tf_ops/core/table/embedding_table.h"

namespace fused_embedding {

struct TableKeys {
  UniquePlan<int64_t> unique;
  Buffer<int32_t> counts;  // [num_unique] occurrences

  Span<const int64_t> keys() const { return {unique.unique_ids.span().data, unique.num_unique}; }
};

struct GroupKeys {
  std::vector<TableKeys> tables;
  std::vector<PairOrder> orders;           // of each column's pairs
  std::vector<int32_t> default_positions;  // of each column: DefaultPosition's code
};

// Checks the columns and finds the keys of each table. Writes `positions`, with -1 for a dropped
// pair.
template <typename T>
Status FindGroupKeys(const CpuExec& exec, const GroupKeysInput<T>& in, GroupKeys* keys);

struct TableLookup {
  EmbeddingTable* table = nullptr;
  bool insert = false;  // FindOrInsert, else Find
  LookupInput in;
  LookupOutput out;
};

// Looks up keys in several tables, and calls `use` for each table while its rows are in the CPU's
// cache. After an error in one table, the lookups of the others may have run. `use` is not called
// for it.
Status LookUpTables(const CpuExec& exec, Span<TableLookup> lookups,
                    const std::function<Status(const CpuExec& exec, int64_t table)>& use);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_TABLE_GROUP_LOOKUP_H_
