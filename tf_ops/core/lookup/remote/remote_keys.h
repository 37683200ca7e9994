// The worker's side of a lookup in tables of other tasks, before it asks: the distinct keys of each
// table, as FindGroupKeys finds them, by the part of the table that has them.
//
//   one table in two parts by mod: ids [7, 2, 7, 4]
//   distinct keys [7, 2, 4]  ->  part 0: rows [1, 2], part 1: rows [3]
//   positions [2, 0, 2, 1] in the rows of part 0 and then part 1
//
// Inside a part the order of first occurrence is kept.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_REMOTE_KEYS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_REMOTE_KEYS_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/lookup/group/table_group_lookup.h"
#include "tf_ops/core/lookup/remote/key_message.h"
#include "tf_ops/core/lookup/rows/shard_map.h"

namespace fused_embedding {

// The parts of tables, table after table, and which server has each.
struct RemoteTables {
  std::vector<PartitionStrategy> strategies;  // [num_tables]
  std::vector<int64_t> num_parts;             // [num_tables]
  std::vector<int64_t> part_rows;     // [sum of num_parts] as ShardMap; those of keys ignore them
  std::vector<int64_t> part_servers;  // [sum of num_parts], each in [0, num_servers)
  int64_t num_servers = 0;

  int64_t num_tables() const { return static_cast<int64_t>(num_parts.size()); }
};

// Checks that lists agree in length, and servers and numbers of parts.
Status CheckRemoteTables(const RemoteTables& tables);

// The rows of each table; only for tables whose ids are row numbers.
std::vector<int64_t> RowsOfTables(const RemoteTables& tables);

struct RemoteKeys {
  GroupKeys keys;
  std::vector<int64_t> part_sizes;   // keys of each part
  std::vector<KeyMessage> messages;  // to each server
};

// Checks the columns, finds the keys and writes the positions, with -1 for a dropped pair.
template <typename T>
Status FindRemoteKeys(const CpuExec& exec, const GroupKeysInput<T>& in, const RemoteTables& tables,
                      bool has_counts, RemoteKeys* found);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_REMOTE_KEYS_H_
