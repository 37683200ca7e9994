#include "tf_ops/core/lookup/remote/packed_rows.h"

#include <algorithm>
#include <numeric>

namespace fused_embedding {

Status CheckPackedLayout(const PackedLayout& layout) {
  int64_t total = 0;
  for (const int64_t parts : layout.num_parts) {
    if (parts < 1 || parts > static_cast<int64_t>(layout.part_servers.size())) {
      return InvalidArgument("num_parts must be >= 1 and at most the number of parts, ",
                             layout.part_servers.size(), ", got ", parts);
    }
    total += parts;
  }
  if (layout.num_parts.size() != layout.dims.size() ||
      total != static_cast<int64_t>(layout.part_servers.size())) {
    return InvalidArgument(
        "num_parts and dims must have one entry for each table, and part_servers one for each of "
        "the ",
        total, " parts, got ", layout.num_parts.size(), ", ", layout.dims.size(), " and ",
        layout.part_servers.size());
  }
  for (const int64_t dim : layout.dims) {
    if (dim < 1) return InvalidArgument("dims must be >= 1, got ", dim);
  }
  for (const int64_t server : layout.part_servers) {
    if (server >= 0 && server < layout.num_servers) continue;
    return InvalidArgument("part_servers has ", server, ", which is outside [0, ",
                           layout.num_servers, "), the number of servers");
  }
  return Status();
}

Status PlacePackedRows(const PackedLayout& layout, Span<const int64_t> part_sizes,
                       PackedPlaces* places) {
  if (part_sizes.size != static_cast<int64_t>(layout.part_servers.size())) {
    return InvalidArgument("part_sizes must have one element for each of the ",
                           layout.part_servers.size(), " parts, got ", part_sizes.size);
  }
  places->server_sizes.assign(static_cast<size_t>(layout.num_servers), 0);
  int64_t part = 0;
  for (size_t t = 0; t < layout.dims.size(); ++t) {
    PackedPlaces::Table table = {part, layout.num_parts[t], 0, 0, true};
    const int64_t first_server = layout.part_servers[static_cast<size_t>(part)];
    for (; part < table.first_part + table.num_parts; ++part) {
      const int64_t server = layout.part_servers[static_cast<size_t>(part)];
      int64_t& size = places->server_sizes[static_cast<size_t>(server)];
      PackedPlaces::Part place = {server, size, 0};
      if (part_sizes[part] < 0 ||
          __builtin_mul_overflow(part_sizes[part], layout.dims[t], &place.num_values) ||
          __builtin_add_overflow(size, place.num_values, &size) ||
          __builtin_add_overflow(table.num_values, place.num_values, &table.num_values)) {
        return InvalidArgument("part_sizes[", part, "] = ", part_sizes[part],
                               " must be a number of rows of ", layout.dims[t], " values");
      }
      table.num_rows += part_sizes[part];
      table.is_whole &= server == first_server;
      places->parts.push_back(place);
    }
    places->tables.push_back(table);
  }
  return Status();
}

Status CheckPackedSizes(const PackedPlaces& places, Span<const int64_t> sizes) {
  for (int64_t s = 0; s < sizes.size; ++s) {
    const int64_t wanted = places.server_sizes[static_cast<size_t>(s)];
    if (sizes[s] == wanted) continue;
    return InvalidArgument("rows of server ", s, " must be ", wanted,
                           " values, as part_sizes has it, got ", sizes[s]);
  }
  return Status();
}

template <typename T>
void UnpackTable(const PackedPlaces& places, int64_t t, Span<const T* const> servers, T* rows) {
  const PackedPlaces::Table& table = places.tables[static_cast<size_t>(t)];
  for (int64_t p = table.first_part; p < table.first_part + table.num_parts; ++p) {
    const PackedPlaces::Part& part = places.parts[static_cast<size_t>(p)];
    rows = std::copy_n(servers[part.server] + part.offset, part.num_values, rows);
  }
}

template <typename T>
void PackTable(const PackedPlaces& places, int64_t t, const T* rows, Span<T* const> servers) {
  const PackedPlaces::Table& table = places.tables[static_cast<size_t>(t)];
  for (int64_t p = table.first_part; p < table.first_part + table.num_parts; ++p) {
    const PackedPlaces::Part& part = places.parts[static_cast<size_t>(p)];
    std::copy_n(rows, part.num_values, servers[part.server] + part.offset);
    rows += part.num_values;
  }
}

template <typename T>
Status ContiguousTables<T>::Gather(const PackedPlaces& places, Span<const T* const> servers) {
  copies_.resize(places.tables.size());
  for (size_t t = 0; t < places.tables.size(); ++t) {
    const PackedPlaces::Table& table = places.tables[t];
    if (table.is_whole) {
      tables_.push_back(WholeTable(places, table, servers));
      continue;
    }
    FE_RETURN_IF_ERROR(copies_[t].Allocate(table.num_values));
    UnpackTable(places, static_cast<int64_t>(t), servers, copies_[t].data());
    tables_.push_back(copies_[t].data());
  }
  return Status();
}

#define FE_INSTANTIATE(T)                                                            \
  template void UnpackTable(const PackedPlaces&, int64_t, Span<const T* const>, T*); \
  template void PackTable(const PackedPlaces&, int64_t, const T*, Span<T* const>);   \
  template class ContiguousTables<T>;
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
