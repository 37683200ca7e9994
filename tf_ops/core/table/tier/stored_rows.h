#ifndef FUSED_EMBEDDING_CORE_TABLE_TIER_STORED_ROWS_H_
#define FUSED_EMBEDDING_CORE_TABLE_TIER_STORED_ROWS_H_

#include <functional>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/storage/cold_store.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

// Called with a batch of rows of `layout.row_bytes()` bytes each.
using VisitRowBytes = std::function<Status(const RowLayout& layout, Span<const char> rows)>;

// Bytes of a row's value in a cold store: the row without its key.
inline int64_t StoredBytes(const RowLayout& layout) {
  return layout.row_bytes() - static_cast<int64_t>(sizeof(int64_t));
}

// Visits all rows of a store, which are of `layout`, in batches of ascending keys.
Status ScanRows(ColdStore* store, const RowLayout& layout, const VisitRowBytes& visit);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TIER_STORED_ROWS_H_
