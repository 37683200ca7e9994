#include "tf_ops/core/lookup/group/usual_stored_rows.h"

#include "tf_ops/core/lookup/group/usual_rows.h"
#include "tf_ops/core/lookup/rows/decoded_rows.h"

namespace fused_embedding {
namespace {

using Kinds = RowKinds<WholeRows<16>, WholeRows<32>, WholeRows<64>, WholeRows<128>>;

template <typename Rows>
struct Decoded {
  template <int64_t kVectorBytes>
  using Of = DecodedRows<Rows, kVectorBytes>;
};

}  // namespace

bool AreUsualStoredRows(const GroupColumn<float>& column) {
  return column.is_stored() && column.max_norm < 0 && column.weights.empty() &&
         Kinds::HaveDim(column.dim);
}

bool CombineUsualStoredRows(const GroupColumn<float>& column, Span<const int64_t> ids,
                            const ColumnRows<float>& rows, int64_t end, int64_t* row,
                            int64_t* next) {
  return WithRowsOf(column.stored.format, [&](auto format) {
    using Rows = Decoded<std::decay_t<decltype(format)>>;
    return RowsOfDims<float, Rows::template Of, Kinds, false>(column, ids, rows)
        .Combine(end, row, next);
  });
}

}  // namespace fused_embedding
