#include "tf_ops/core/lookup/group/usual_stored_rows.h"

#include "tf_ops/core/lookup/group/usual_rows.h"
#include "tf_ops/core/lookup/rows/decoded_rows.h"

namespace fused_embedding {
namespace {

using Dims = std::integer_sequence<int64_t, 16, 32, 64, 128>;

template <typename Rows>
struct Decoded {
  template <int64_t kVectorBytes>
  using Of = DecodedRows<Rows, kVectorBytes>;
};

}  // namespace

bool AreUsualStoredRows(const GroupColumn<float>& column) {
  return column.is_stored() && column.max_norm < 0 && column.weights.empty() &&
         IsOneOf(column.dim, Dims());
}

bool CombineUsualStoredRows(const GroupColumn<float>& column, Span<const int64_t> ids,
                            const ColumnRows<float>& rows, int64_t end, int64_t* row,
                            int64_t* next) {
  return WithRowsOf(column.stored.format, [&](auto format) {
    using Rows = Decoded<std::decay_t<decltype(format)>>;
    return RowsOfDims<float, Rows::template Of, Dims, false>(column, ids, rows)
        .Combine(end, row, next);
  });
}

}  // namespace fused_embedding
