#include "tf_ops/core/lookup/remote/remote_keys.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tf_ops/core/lookup/stages/partition.h"

namespace fused_embedding {
namespace {

// A table of RemoteTables.
struct TableParts {
  int64_t table;
  int64_t first;  // number of its first part
  PartitionStrategy strategy;
  Span<const int64_t> rows;  // of its parts

  PartitionInput input(Span<const int64_t> keys) const { return {keys, rows, strategy}; }
};

std::vector<TableParts> PartsOf(const RemoteTables& tables) {
  std::vector<TableParts> parts;
  int64_t first = 0;
  for (int64_t t = 0; t < tables.num_tables(); ++t) {
    const int64_t count = tables.num_parts[static_cast<size_t>(t)];
    parts.push_back({t,
                     first,
                     tables.strategies[static_cast<size_t>(t)],
                     {tables.part_rows.data() + first, count}});
    first += count;
  }
  return parts;
}

// From the numbers of keys in the order of their first occurrence to those part after part.
std::vector<int32_t> NumbersByPart(Span<const int32_t> permutation, Span<const int64_t> sizes) {
  std::vector<int64_t> starts(static_cast<size_t>(sizes.size), 0);
  std::partial_sum(sizes.begin(), sizes.end() - 1, starts.begin() + 1);
  std::vector<int32_t> numbers(static_cast<size_t>(permutation.size / 2));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int64_t at = 2 * static_cast<int64_t>(i);
    numbers[i] =
        static_cast<int32_t>(starts[static_cast<size_t>(permutation[at])]) + permutation[at + 1];
  }
  return numbers;
}

// The error of a table of which no part has some id: names the first column that looks such an id
// up, and its place there. `status` is the error of the distinct ids.
template <typename T>
Status InColumnOf(const GroupKeysInput<T>& in, const TableParts& parts, const Status& status) {
  const ShardMap map(parts.input({}));
  for (int64_t c = 0; c < in.columns.size; ++c) {
    const GroupColumn<T>& column = in.columns[c];
    if (in.table_of_column[c] != parts.table) continue;
    for (int64_t i = 0; i < column.num_pairs(); ++i) {
      if (!column.IsKept(i) || map.view().Shard(column.ids[i]) >= 0) continue;
      return InColumn(c, map.NoShard(column.ids[i], i), column.name);
    }
  }
  return status;  // of an id that fills rows
}

template <typename T>
void Renumber(const GroupKeysInput<T>& in, int64_t table, const std::vector<int32_t>& numbers,
              GroupKeys* keys) {
  for (int64_t c = 0; c < in.columns.size; ++c) {
    if (in.table_of_column[c] != table) continue;
    for (int32_t& position : in.positions[c]) {
      if (position >= 0) position = numbers[static_cast<size_t>(position)];
    }
    int32_t& code = keys->default_positions[static_cast<size_t>(c)];
    const DefaultPosition of_default = {code};
    if (!of_default.is_key()) continue;
    const int32_t number = numbers[static_cast<size_t>(of_default.position())];
    code = DefaultPosition::Of(number, of_default.is_zero()).code;
  }
}

// Makes the message of each server, and returns where in it the keys of each part begin.
Status StartMessages(const RemoteTables& tables, bool has_counts, RemoteKeys* found,
                     std::vector<int64_t>* first_keys) {
  found->messages.resize(static_cast<size_t>(tables.num_servers));
  std::vector<int64_t> num_keys(found->messages.size(), 0);
  for (size_t p = 0; p < found->part_sizes.size(); ++p) {
    const size_t server = static_cast<size_t>(tables.part_servers[p]);
    first_keys->push_back(num_keys[server]);
    num_keys[server] += found->part_sizes[p];
    found->messages[server].num_keys.push_back(found->part_sizes[p]);
  }
  for (KeyMessage& message : found->messages) {
    message.has_counts = has_counts;
    FE_RETURN_IF_ERROR(message.Allocate());
  }
  return Status();
}

// `permutations` are those of each table, as PlanPartition has them.
Status FillMessages(const RemoteTables& tables, const std::vector<Buffer<int32_t>>& permutations,
                    bool has_counts, RemoteKeys* found) {
  std::vector<int64_t> first_keys;
  FE_RETURN_IF_ERROR(StartMessages(tables, has_counts, found, &first_keys));
  for (const TableParts& parts : PartsOf(tables)) {
    const TableKeys& keys = found->keys.tables[static_cast<size_t>(parts.table)];
    const Span<const int32_t> permutation = permutations[static_cast<size_t>(parts.table)].span();
    std::vector<Span<int64_t>> keys_of_parts;
    std::vector<int32_t*> counts_of_parts;
    for (int64_t p = 0; p < parts.rows.size; ++p) {
      const size_t part = static_cast<size_t>(parts.first + p);
      KeyMessage& message = found->messages[static_cast<size_t>(tables.part_servers[part])];
      keys_of_parts.push_back({message.keys.data() + first_keys[part], found->part_sizes[part]});
      if (has_counts) counts_of_parts.push_back(message.counts.data() + first_keys[part]);
    }
    RunPartition(parts.input(keys.keys()), permutation, AsSpan(std::as_const(keys_of_parts)));
    for (int64_t i = 0; has_counts && i < keys.unique.num_unique; ++i) {
      counts_of_parts[static_cast<size_t>(permutation[2 * i])][permutation[2 * i + 1]] =
          keys.counts.span()[i];
    }
  }
  return Status();
}

}  // namespace

Status CheckRemoteTables(const RemoteTables& tables) {
  constexpr int64_t kMaxParts = 1 << 24;  // so that sums do not overflow
  const bool are_possible = std::all_of(tables.num_parts.begin(), tables.num_parts.end(),
                                        [](int64_t n) { return n >= 1 && n < kMaxParts; });
  const int64_t num_parts =
      are_possible ? std::accumulate(tables.num_parts.begin(), tables.num_parts.end(), int64_t{0})
                   : 0;
  if (!are_possible || tables.strategies.size() != tables.num_parts.size() ||
      static_cast<int64_t>(tables.part_rows.size()) != num_parts ||
      static_cast<int64_t>(tables.part_servers.size()) != num_parts) {
    return InvalidArgument(
        "num_parts and partition_strategies must have one entry for each table, and part_rows and "
        "part_servers one for each part, got ",
        tables.num_parts.size(), ", ", tables.strategies.size(), ", ", tables.part_rows.size(),
        " and ", tables.part_servers.size());
  }
  for (const int64_t server : tables.part_servers) {
    if (server >= 0 && server < tables.num_servers) continue;
    return InvalidArgument("part_servers has ", server, ", which is outside [0, ",
                           tables.num_servers, "), the number of servers");
  }
  for (const TableParts& parts : PartsOf(tables)) FE_RETURN_IF_ERROR(CheckShards(parts.input({})));
  return Status();
}

std::vector<int64_t> RowsOfTables(const RemoteTables& tables) {
  std::vector<int64_t> rows;
  for (const TableParts& parts : PartsOf(tables)) {
    rows.push_back(std::accumulate(parts.rows.begin(), parts.rows.end(), int64_t{0}));
  }
  return rows;
}

template <typename T>
Status FindRemoteKeys(const CpuExec& exec, const GroupKeysInput<T>& in, const RemoteTables& tables,
                      bool has_counts, RemoteKeys* found) {
  FE_RETURN_IF_ERROR(FindGroupKeys(exec, in, &found->keys));
  found->part_sizes.resize(tables.part_rows.size());
  std::vector<Buffer<int32_t>> permutations(tables.num_parts.size());
  for (const TableParts& parts : PartsOf(tables)) {
    const size_t table = static_cast<size_t>(parts.table);
    const Span<const int64_t> keys = found->keys.tables[table].keys();
    FE_RETURN_IF_ERROR(permutations[table].Allocate(2 * keys.size));
    const Span<int32_t> permutation = permutations[table].span();
    const Span<int64_t> sizes = {found->part_sizes.data() + parts.first, parts.rows.size};
    const Status status = PlanPartition(parts.input(keys), permutation, sizes);
    if (!status.ok()) return InColumnOf(in, parts, status);
    if (sizes.size > 1) Renumber(in, parts.table, NumbersByPart(permutation, sizes), &found->keys);
  }
  return FillMessages(tables, permutations, has_counts, found);
}

#define FE_INSTANTIATE(T)                                                                       \
  template Status FindRemoteKeys(const CpuExec&, const GroupKeysInput<T>&, const RemoteTables&, \
                                 bool, RemoteKeys*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
