#include "tf_ops/core/table/tier/stored_rows.h"

#include <cstring>
#include <vector>

#include "tf_ops/core/table/shard_loops.h"

namespace fused_embedding {

Status ScanRows(ColdStore* store, const RowLayout& layout, const VisitRowBytes& visit) {
  const size_t row_bytes = static_cast<size_t>(layout.row_bytes());
  const size_t stored_bytes = static_cast<size_t>(StoredBytes(layout));
  std::vector<char> rows;
  return store->Scan([&](Span<const int64_t> keys, Span<const char> values) {
    return WithoutExceptions([&] {
      rows.resize(static_cast<size_t>(keys.size) * row_bytes);
      char* row = rows.data();
      const char* value = values.data;
      for (const int64_t key : keys) {
        std::memcpy(row, &key, sizeof(key));
        std::memcpy(row + sizeof(key), value, stored_bytes);
        row += row_bytes;
        value += stored_bytes;
      }
      return visit(layout, AsSpan(rows));
    });
  });
}

}  // namespace fused_embedding
