// The worker's side of a lookup in tables of other tasks, once the rows are here: columns of
// positions in the rows that the servers sent.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_REMOTE_LOOKUP_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_REMOTE_LOOKUP_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/core/lookup/group/table_group_lookup.h"
#include "tf_ops/core/lookup/remote/packed_rows.h"

namespace fused_embedding {

template <typename T>
struct RemoteColumns {
  Span<GroupColumn<T>> columns;           // their ids are positions; their tables are set here
  Span<const int64_t> table_of_column;    // [num_columns]
  Span<const int32_t> default_positions;  // [num_columns] codes of DefaultPosition
};

// Gives the columns the rows of their tables.
template <typename T>
Status SetRemoteTables(const PackedLayout& layout, const PackedPlaces& places,
                       const ContiguousTables<T>& tables, const RemoteColumns<T>& in) {
  if (in.default_positions.size != in.columns.size) {
    return InvalidArgument("default_positions must have one element for each of the ",
                           in.columns.size, " columns, got ", in.default_positions.size);
  }
  for (int64_t c = 0; c < in.columns.size; ++c) {
    const int64_t t = in.table_of_column[c];
    GroupColumn<T>& column = in.columns[c];
    column.table = tables[t];
    column.table_rows = places.tables[static_cast<size_t>(t)].num_rows;
    column.dim = layout.dims[static_cast<size_t>(t)];
    SetDefaultPosition(DefaultPosition{in.default_positions[c]}, &column);
  }
  return Status();
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_REMOTE_LOOKUP_H_
