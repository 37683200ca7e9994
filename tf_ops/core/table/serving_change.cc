#include "tf_ops/core/table/serving_change.h"

namespace fused_embedding {
namespace {

Status PutChange(const CpuExec& exec, const TableChange& change) {
  // Room first: a bounded table then has it for all that is set.
  if (change.is_full) FE_RETURN_IF_ERROR(change.table->Clear());
  int64_t num_erased = 0;
  FE_RETURN_IF_ERROR(change.table->Erase(exec, change.removed_keys, &num_erased));
  return change.table->Upsert(exec, change.content);
}

}  // namespace

Status CheckNotTorn(const ServingLock& lock) {
  if (!lock.is_torn()) return Status();
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "a delta was applied in part, as a table was full or memory ran out: load the "
                    "export again, and apply all deltas");
}

Status PutChanges(const CpuExec& exec, Span<const TableChange> changes, ServingLock* lock) {
  FE_RETURN_IF_ERROR(CheckNotTorn(*lock));
  for (const TableChange& change : changes) {
    const Status status = PutChange(exec, change);
    if (status.ok()) continue;
    lock->set_torn();
    return status;
  }
  return Status();
}

}  // namespace fused_embedding
