// What a search for the keys of a group takes and tells, on a CPU and on a GPU.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_KEYS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_KEYS_H_

#include <cstdint>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/lookup/group/group_column.h"

namespace fused_embedding {

template <typename T>
struct GroupKeysInput {
  Span<const GroupColumn<T>> columns;   // their ids are keys; their `table` is ignored
  Span<const int64_t> table_of_column;  // [num_columns], each in [0, num_tables)
  Span<const Span<int32_t>> positions;  // [num_columns] outputs, [nnz] each
  int64_t num_tables = 0;
};

// Where the keys have what a column fills its empty rows with, as one number.
struct DefaultPosition {
  int32_t code = -1;  // the position; -1: no row is filled; -2 - position: filled rows are zero

  FE_HOST_DEVICE static DefaultPosition Of(int32_t position, bool is_zero) {
    return {is_zero ? -2 - position : position};
  }
  bool is_key() const { return code != -1; }
  bool is_zero() const { return code < -1; }
  int32_t position() const { return is_zero() ? -2 - code : code; }
};

// Has a column of positions fill its empty rows.
template <typename T>
void SetDefaultPosition(DefaultPosition position, GroupColumn<T>* column) {
  column->fill = position.is_key();
  column->default_id = position.is_zero() ? -1 : position.position();
  column->zero_id = position.is_zero() ? position.position() : 0;
}

// Converts a column of keys to a column of positions in the rows found, `table` [num_keys, dim].
template <typename T>
GroupColumn<T> PositionColumn(const GroupColumn<T>& column, IdSpan positions,
                              DefaultPosition default_position, const T* table, int64_t num_keys) {
  GroupColumn<T> by_position = column;
  by_position.ids = positions;
  by_position.ids_are_keys = false;
  by_position.table = table;
  by_position.table_rows = num_keys;
  SetDefaultPosition(default_position, &by_position);
  return by_position;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_GROUP_KEYS_H_
