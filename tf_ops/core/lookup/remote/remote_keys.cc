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

int64_t RemoteKeysPlan::num_words(int64_t server, bool has_counts) const {
  const std::vector<int64_t>& sizes = server_part_sizes[static_cast<size_t>(server)];
  const int64_t num_keys = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  return NumMessageWords(static_cast<int64_t>(sizes.size()), num_keys, has_counts);
}

template <typename T>
Status PlanRemoteKeys(const CpuExec& exec, const GroupKeysInput<T>& in, const RemoteTables& tables,
                      RemoteKeysPlan* plan) {
  FE_RETURN_IF_ERROR(FindGroupKeys(exec, in, &plan->keys));
  plan->part_sizes.resize(tables.part_rows.size());
  plan->permutations.resize(tables.num_parts.size());
  plan->server_part_sizes.resize(static_cast<size_t>(tables.num_servers));
  for (const TableParts& parts : PartsOf(tables)) {
    const Span<const int64_t> keys = plan->keys.tables[static_cast<size_t>(parts.table)].keys();
    Buffer<int32_t>& permutation = plan->permutations[static_cast<size_t>(parts.table)];
    FE_RETURN_IF_ERROR(permutation.Allocate(2 * keys.size));
    const Span<int64_t> sizes = {plan->part_sizes.data() + parts.first, parts.rows.size};
    const Status status = PlanPartition(parts.input(keys), permutation.span(), sizes);
    if (!status.ok()) return InColumnOf(in, parts, status);
    if (sizes.size > 1) {
      Renumber(in, parts.table, NumbersByPart(permutation.span(), sizes), &plan->keys);
    }
    for (int64_t p = 0; p < sizes.size; ++p) {
      const int64_t server = tables.part_servers[static_cast<size_t>(parts.first + p)];
      plan->server_part_sizes[static_cast<size_t>(server)].push_back(sizes[p]);
    }
  }
  return Status();
}

namespace {

// Where the keys and counts of parts go: in the message of a server, part after part.
class MessageWriter {
 public:
  Status Start(const RemoteKeysPlan& plan, int64_t num_servers, bool has_counts) {
    counts_.resize(static_cast<size_t>(num_servers));
    num_written_.resize(static_cast<size_t>(num_servers), 0);
    for (size_t s = 0; has_counts && s < counts_.size(); ++s) {
      const std::vector<int64_t>& sizes = plan.server_part_sizes[s];
      FE_RETURN_IF_ERROR(
          counts_[s].Allocate(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})));
    }
    return Status();
  }

  // The place of the next part of a server in its keys.
  int64_t Next(int64_t server, int64_t size) {
    return std::exchange(num_written_[static_cast<size_t>(server)],
                         num_written_[static_cast<size_t>(server)] + size);
  }
  Buffer<int32_t>& counts(int64_t server) { return counts_[static_cast<size_t>(server)]; }

 private:
  std::vector<Buffer<int32_t>> counts_;
  std::vector<int64_t> num_written_;
};

// `places` are those of each part in its server's keys.
void WriteCounts(const RemoteKeysPlan& plan, const RemoteTables& tables,
                 const std::vector<int64_t>& places, MessageWriter* writer) {
  for (const TableParts& parts : PartsOf(tables)) {
    const TableKeys& keys = plan.keys.tables[static_cast<size_t>(parts.table)];
    const Span<const int32_t> permutation =
        plan.permutations[static_cast<size_t>(parts.table)].span();
    for (int64_t i = 0; i < keys.unique.num_unique; ++i) {
      const size_t part = static_cast<size_t>(parts.first + permutation[2 * i]);
      writer->counts(tables.part_servers[part])[places[part] + permutation[2 * i + 1]] =
          keys.counts.span()[i];
    }
  }
}

}  // namespace

Status RunRemoteKeys(const RemoteKeysPlan& plan, const RemoteTables& tables, int64_t step,
                     bool has_counts, Span<const Span<int64_t>> messages) {
  MessageWriter writer;
  FE_RETURN_IF_ERROR(writer.Start(plan, tables.num_servers, has_counts));
  std::vector<int64_t> places;  // of each part
  for (size_t p = 0; p < plan.part_sizes.size(); ++p) {
    places.push_back(writer.Next(tables.part_servers[p], plan.part_sizes[p]));
  }
  if (has_counts) WriteCounts(plan, tables, places, &writer);
  std::vector<Span<int64_t>> keys_of_servers;
  for (int64_t s = 0; s < messages.size; ++s) {
    const MessageHeader header = {step, AsSpan(plan.server_part_sizes[static_cast<size_t>(s)]),
                                  has_counts};
    keys_of_servers.push_back(WriteMessage(header, writer.counts(s).span(), messages[s]));
  }
  for (const TableParts& parts : PartsOf(tables)) {
    std::vector<Span<int64_t>> of_parts;
    for (int64_t p = 0; p < parts.rows.size; ++p) {
      const size_t part = static_cast<size_t>(parts.first + p);
      const size_t server = static_cast<size_t>(tables.part_servers[part]);
      of_parts.push_back({keys_of_servers[server].data + places[part], plan.part_sizes[part]});
    }
    const size_t table = static_cast<size_t>(parts.table);
    RunPartition(parts.input(plan.keys.tables[table].keys()), plan.permutations[table].span(),
                 AsSpan(std::as_const(of_parts)));
  }
  return Status();
}

#define FE_INSTANTIATE(T)                                                                       \
  template Status PlanRemoteKeys(const CpuExec&, const GroupKeysInput<T>&, const RemoteTables&, \
                                 RemoteKeysPlan*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
