// Tables of rows in fewer bytes than their values. Such rows are only read: whoever writes them
// (python/fused_embedding/serving/row_formats.py) rounds.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_ROWS_STORED_ROWS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_ROWS_STORED_ROWS_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// THE list of formats; row_formats.h describes them.
enum class RowFormat { kInt8, kInt4, kBFloat16 };

inline Status ParseRowFormat(const std::string& name, RowFormat* format) {
  if (name == "int8") {
    *format = RowFormat::kInt8;
  } else if (name == "int4") {
    *format = RowFormat::kInt4;
  } else if (name == "bfloat16") {
    *format = RowFormat::kBFloat16;
  } else {
    return InvalidArgument("a row format must be int8, int4 or bfloat16, got ", name);
  }
  return Status();
}

// The rows of a table.
struct StoredRows {
  const uint8_t* data = nullptr;  // null: there is none
  RowFormat format = RowFormat::kInt8;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_ROWS_STORED_ROWS_H_
