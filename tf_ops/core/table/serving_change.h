// Applies a delta to the tables of an export, while no request reads them.

#ifndef FUSED_EMBEDDING_CORE_TABLE_SERVING_CHANGE_H_
#define FUSED_EMBEDDING_CORE_TABLE_SERVING_CHANGE_H_

#include <cstdint>

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/embedding_table.h"
#include "tf_ops/core/table/serving_lock.h"

namespace fused_embedding {

// The changes of a table in a delta.
struct TableChange {
  EmbeddingTable* table = nullptr;
  EmbeddingTable::Content content;   // rows to set
  Span<const int64_t> removed_keys;  // erased first
  bool is_full = false;              // all rows are erased first
};

// FailedPrecondition if a delta failed half-way. The caller must hold the lock.
Status CheckNotTorn(const ServingLock& lock);

// The caller must hold `lock` exclusively. An error means that a table is full or memory ran out.
// Some tables may then have changed and others not, so the lock is marked as torn.
Status PutChanges(const CpuExec& exec, Span<const TableChange> changes, ServingLock* lock);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_SERVING_CHANGE_H_
