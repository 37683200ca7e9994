// A delta that is put into the tables of an export, while no request reads them.

#ifndef FUSED_EMBEDDING_CORE_TABLE_SERVING_CHANGE_H_
#define FUSED_EMBEDDING_CORE_TABLE_SERVING_CHANGE_H_

#include <cstdint>

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/embedding_table.h"
#include "tf_ops/core/table/serving_lock.h"

namespace fused_embedding {

// What a delta says of a table.
struct TableChange {
  EmbeddingTable* table = nullptr;
  EmbeddingTable::Content content;   // rows to set
  Span<const int64_t> removed_keys;  // erased first
  bool is_full = false;              // all rows are
};

// FailedPrecondition where a delta failed half-way. By those who hold the lock.
Status CheckNotTorn(const ServingLock& lock);

// By who holds `lock` alone. After an error, which is that a table is full or memory ran out, some
// tables may be changed and others not: the lock is torn.
Status PutChanges(const CpuExec& exec, Span<const TableChange> changes, ServingLock* lock);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_SERVING_CHANGE_H_
