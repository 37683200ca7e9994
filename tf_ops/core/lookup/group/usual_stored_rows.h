// UsualRows of rows in fewer bytes, without weights.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_STORED_ROWS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_STORED_ROWS_H_

#include <cstdint>

#include "tf_ops/core/lookup/group/column_rows.h"

namespace fused_embedding {

bool AreUsualStoredRows(const GroupColumn<float>& column);

// RowsOfDims::Combine.
bool CombineUsualStoredRows(const GroupColumn<float>& column, Span<const int64_t> ids,
                            const ColumnRows<float>& rows, int64_t end, int64_t* row,
                            int64_t* next);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_USUAL_STORED_ROWS_H_
