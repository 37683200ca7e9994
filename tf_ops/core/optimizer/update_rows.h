// The rules, compiled for each value type: one function each that updates the rows of a batch.

#ifndef FUSED_EMBEDDING_CORE_OPTIMIZER_UPDATE_ROWS_H_
#define FUSED_EMBEDDING_CORE_OPTIMIZER_UPDATE_ROWS_H_

#include <cstdint>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/table/embedding_table.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

struct RowsUpdate {
  RowBatch batch;
  const char* grads = nullptr;  // [n, dim], row batch.positions[i] for batch.rows[i]
  int64_t dim = 0;
  int64_t row_bytes = 0;
  int64_t value_offset = 0;               // in a row
  const int64_t* slot_offsets = nullptr;  // in a row, in the order of the rule's slots
  const double* hyperparameters = nullptr;
};

using UpdateRows = void (*)(const RowsUpdate& update);

// By place in the list of rules.h.
template <typename T>
Span<const UpdateRows> UpdateRowsOfRules();

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_OPTIMIZER_UPDATE_ROWS_H_
