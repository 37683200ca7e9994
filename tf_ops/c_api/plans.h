// Each lookup as a plan of the C functions: inputs become those of core, outputs get their sizes.

#ifndef FUSED_EMBEDDING_C_API_PLANS_H_
#define FUSED_EMBEDDING_C_API_PLANS_H_

#include "tf_ops/c_api/machine.h"

namespace fused_embedding::c_api {

Status PlanCopied(const FeMachine& machine, const FeCopied& in, FePlanned* planned);
Status PlanGather(const FeMachine& machine, const FeGather& in, FePlanned* planned);
Status PlanPruneAndFill(const FeMachine& machine, const FePruneAndFill& in, FePlanned* planned);
Status PlanUnique(const FeMachine& machine, const FeUnique& in, FePlanned* planned);
Status PlanPartition(const FeMachine& machine, const FePartition& in, FePlanned* planned);
Status PlanPostLookup(const FeMachine& machine, const FePairs& in, FePlanned* planned);
Status PlanPostLookupGrad(const FeMachine& machine, const FePairs& in, FePlanned* planned);
Status PlanGroupLookup(const FeMachine& machine, const FeGroup& in, FePlanned* planned);
Status PlanGroupLookupGrad(const FeMachine& machine, const FeGroup& in, FePlanned* planned);
Status PlanTableGroupLookup(const FeMachine& machine, const FeGroup& in, FePlanned* planned);
Status PlanSparseApply(const FeMachine& machine, const FeSparseApply& in, FePlanned* planned);
Status PlanGroupLookupApply(const FeMachine& machine, const FeGroupApply& in, FePlanned* planned);
Status PlanTableFind(const FeMachine& machine, const FeTableKeys& in, FePlanned* planned);
Status PlanTableFindOrInsert(const FeMachine& machine, const FeTableKeys& in, FePlanned* planned);
Status PlanTableErase(const FeMachine& machine, const FeTableKeys& in, FePlanned* planned);
Status PlanTableApply(const FeMachine& machine, const FeTableApply& in, FePlanned* planned);

// For CloseGpuTable.
Status OpenGpuTable(const FeMachine& machine, const FeGpuTableConfig& config, FeGpuTable** table);
void CloseGpuTable(FeGpuTable* table);
FeGpuTableSizes SizesOf(const FeGpuTable& table);

}  // namespace fused_embedding::c_api

#endif  // FUSED_EMBEDDING_C_API_PLANS_H_
