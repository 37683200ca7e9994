// The rows of a column's result that are not sums.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_ROWS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_ROWS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/core/lookup/group/group_lookup.h"
#include "tf_ops/core/lookup/rows/row_formats.h"
#include "tf_ops/core/lookup/rows/row_math.h"

namespace fused_embedding {

// The factor that max_norm gives to a row of the table.
template <typename T>
FE_INLINE ComputeType<T> ClipScaleOf(const GroupColumn<T>& column, int64_t id) {
  using C = ComputeType<T>;
  if (column.max_norm < 0) return 1;
  if constexpr (std::is_same_v<T, float>) {
    if (column.is_stored()) {
      return ClipScale(NormOfRow(column.stored, id, column.dim), static_cast<C>(column.max_norm));
    }
  }
  return ClipScale(L2Norm(column.row_of_id(id), column.dim), static_cast<C>(column.max_norm));
}

template <typename T>
class ColumnRows {
 public:
  ColumnRows(const GroupColumn<T>& column, const CombinedOut<T>& out)
      : column_(column), out_(out) {}

  FE_INLINE T* row(int64_t row) const { return out_.data + row * out_.stride; }

  // Writes a row without ids. Returns false if the id that fills it is not in the table. Not
  // inlined: such rows are rare, and the loops that combine others need the registers.
  __attribute__((noinline)) bool Fill(int64_t row) const {
    if (column_.fill && column_.filled_id() >= column_.table_rows) return false;
    if (!column_.fills_default()) {
      StoreZeros(row);
      return true;
    }
    const auto clip_scale = ClipScaleOf(column_, column_.default_id);
    T* combined = this->row(row);
    const T* embedding = DefaultRow(combined);
    for (int64_t d = 0; d < column_.dim; ++d) Store(clip_scale * Load(embedding[d]), &combined[d]);
    return true;
  }

  // Writes a row whose denominator is 0: 0 times infinity would not be 0.
  void StoreZeros(int64_t row) const {
    std::memset(this->row(row), 0, static_cast<size_t>(column_.dim) * sizeof(T));
  }

 private:
  // The row of default_id: in the table, or decoded to `decoded` [dim].
  const T* DefaultRow([[maybe_unused]] T* decoded) const {
    if constexpr (std::is_same_v<T, float>) {
      if (column_.is_stored()) {
        DecodeRow(column_.stored, column_.default_id, column_.dim, decoded);
        return decoded;
      }
    }
    return column_.row_of_id(column_.default_id);
  }

  const GroupColumn<T>& column_;
  const CombinedOut<T>& out_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_COLUMN_ROWS_H_
