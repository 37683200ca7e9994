#ifndef FUSED_EMBEDDING_CORE_TABLE_TIER_STORED_ROWS_H_
#define FUSED_EMBEDDING_CORE_TABLE_TIER_STORED_ROWS_H_

#include <functional>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/storage/cold_store.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

// Some rows, `layout.row_bytes()` each.
using VisitRowBytes = std::function<Status(const RowLayout& layout, Span<const char> rows)>;

// What a cold store keeps of a row: all but its key.
inline int64_t StoredBytes(const RowLayout& layout) {
  return layout.row_bytes() - static_cast<int64_t>(sizeof(int64_t));
}

// All rows of a store of rows of `layout`, in batches of ascending keys.
Status ScanRows(ColdStore* store, const RowLayout& layout, const VisitRowBytes& visit);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TIER_STORED_ROWS_H_
