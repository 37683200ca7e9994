// Counts the keys of several columns, and inserts those that their tables admit, before a lookup
// that neither counts nor inserts. The caller learns which keys have a row, and how often each has
// occurred: by that it decides what to look up.
//
//   columns of one table, min_frequency 2: ids [7, -1, 7] and [3]
//   is_admitted [1, 0, 1] and [0]   frequencies [2, 0, 2] and [1]

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_GROUP_ADMIT_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_GROUP_ADMIT_H_

#include <cstdint>

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/embedding_table.h"

namespace fused_embedding {

struct AdmitColumn {
  Span<const int64_t> keys;   // [n]
  const char* first_values;   // [n, dim] of new rows; null in all columns: the initializer's
  Span<bool> is_admitted;     // [n] output: whether the key has a row
  Span<int64_t> frequencies;  // [n] output: occurrences, this batch's included
};

struct AdmitTable {
  EmbeddingTable* table = nullptr;
  bool insert = true;          // else the table does not change
  int64_t step = -1;           // as of LookupInput
  int64_t min_frequency = -1;  // as of LookupInput
  int64_t num_refused = 0;     // output: keys that a full table has refused
};

struct AdmitInput {
  Span<const AdmitColumn> columns;
  Span<const int64_t> table_of_column;  // each in [0, tables.size)
  Span<AdmitTable> tables;
  bool prune = true;  // keys < 0 are no keys: not admitted, frequency 0
};

// A key that occurs several times starts with the first of its values. Without `insert`, keys
// without a row have frequency 0. After an error in one table, others may have changed.
Status AdmitKeys(const CpuExec& exec, const AdmitInput& in);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_GROUP_ADMIT_H_
