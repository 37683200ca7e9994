// Copies, stages 1 to 4, and lookups by their names.

#include "tf_ops/c_api/arrays.h"
#include "tf_ops/c_api/plans.h"
#include "tf_ops/core/lookup/stages/gather.h"
#include "tf_ops/core/lookup/stages/partition.h"
#include "tf_ops/core/lookup/stages/prune_and_fill.h"
#include "tf_ops/core/lookup/stages/unique.h"

namespace fused_embedding {
namespace c_api {

Status PlanCopied(const FeMachine& machine, const FeCopied& in, FePlanned* planned) {
  Span<const char> from;
  FE_RETURN_IF_ERROR(ToSpan("from", in.from, &from));
  planned->sizes = {from.size};
  planned->run = [&machine, from](const FeArray* outputs) {
    return machine.Copy(outputs[0].data, from.data, from.size);
  };
  return Status();
}

Status PlanGather(const FeMachine& machine, const FeGather& in, FePlanned* planned) {
  Span<const char> table;
  Span<const int64_t> ids;
  FE_RETURN_IF_ERROR(ToSpan("table", in.table, in.num_rows, in.row_bytes, &table));
  FE_RETURN_IF_ERROR(ToSpan("ids", in.ids, &ids));
  int64_t bytes = 0;
  FE_RETURN_IF_ERROR(ToSize("rows", ids.size, in.row_bytes, &bytes));
  const TableView view = {table.data, in.num_rows, in.row_bytes};
  planned->sizes = {bytes};
  planned->run = [&machine, view, ids](const FeArray* outputs) {
    char* out = static_cast<char*>(outputs[0].data);
    return machine.gpu() ? Gather(*machine.gpu(), view, ids, out)
                         : Gather(*machine.cpu(), view, ids, out);
  };
  return Status();
}

Status PlanPruneAndFill(const FeMachine& machine, const FePruneAndFill& in, FePlanned* planned) {
  PruneAndFillInput<float> input;
  Span<bool> is_row_empty;
  FE_RETURN_IF_ERROR(ToSpan("ids", in.ids, &input.ids));
  FE_RETURN_IF_ERROR(ToSpan("indices", in.indices, &input.indices));
  FE_RETURN_IF_ERROR(ToSpan("weights", in.weights, &input.weights));
  FE_RETURN_IF_ERROR(ToSpan("is_row_empty", in.is_row_empty, &is_row_empty));
  input.num_rows = is_row_empty.size;
  input.default_id = in.default_id;
  input.default_weight = in.default_weight;
  input.prune = in.prune != 0;
  input.prune_weights = in.prune_weights != 0;
  input.fill = in.fill != 0;
  const auto output = [has_weights = !input.weights.empty()](const FeArray* outputs, int64_t nnz) {
    return PruneAndFillOutput<float>{OutputSpan<int64_t>(outputs[0], nnz),
                                     OutputSpan<int64_t>(outputs[1], 2 * nnz),
                                     OutputSpan<float>(outputs[2], has_weights ? nnz : 0)};
  };
  const auto set_sizes = [&](const PruneAndFillPlan& plan) {
    const int64_t nnz = plan.nnz_out();
    planned->sizes = {nnz, 2 * nnz, input.weights.empty() ? 0 : nnz};
  };
  if (const GpuExec* gpu = machine.gpu()) {
    auto plan = std::make_shared<GpuPruneAndFillPlan>();
    FE_RETURN_IF_ERROR(fused_embedding::PlanPruneAndFill(*gpu, input, is_row_empty, plan.get()));
    set_sizes(plan->sizes);
    planned->run = [=](const FeArray* outputs) {
      return RunPruneAndFill<float>(*gpu, input, *plan, is_row_empty,
                                    output(outputs, plan->sizes.nnz_out()));
    };
    return Status();
  }
  PruneAndFillPlan plan;
  FE_RETURN_IF_ERROR(fused_embedding::PlanPruneAndFill(input, is_row_empty, &plan));
  set_sizes(plan);
  planned->run = [=](const FeArray* outputs) {
    RunPruneAndFill<float>(input, plan, is_row_empty, output(outputs, plan.nnz_out()));
    return Status();
  };
  return Status();
}

Status PlanUnique(const FeMachine& machine, const FeUnique& in, FePlanned* planned) {
  Span<const int64_t> ids;
  Span<int32_t> unique_idx;
  FE_RETURN_IF_ERROR(ToSpan("ids", in.ids, &ids));
  FE_RETURN_IF_ERROR(ToSpan("unique_idx", in.unique_idx, ids.size, 1, &unique_idx));
  if (const GpuExec* gpu = machine.gpu()) {
    auto plan = std::make_shared<GpuUniquePlan>();
    FE_RETURN_IF_ERROR((fused_embedding::PlanUnique<int64_t, int32_t>(*gpu, ids, plan.get())));
    const int64_t size = plan->num_unique;
    planned->sizes = {size, size};
    planned->run = [=](const FeArray* outputs) {
      return RunUnique<int64_t, int32_t>(*gpu, ids, *plan,
                                         {unique_idx, OutputSpan<int64_t>(outputs[0], size),
                                          OutputSpan<int32_t>(outputs[1], size)});
    };
    return Status();
  }
  auto plan = std::make_shared<UniquePlan<int64_t>>();
  FE_RETURN_IF_ERROR(fused_embedding::PlanUnique(*machine.cpu(), ids, unique_idx, plan.get()));
  const int64_t size = plan->num_unique;
  planned->sizes = {size, size};
  planned->run = [=](const FeArray* outputs) {
    RunUnique<int64_t, int32_t>(*plan, unique_idx, OutputSpan<int64_t>(outputs[0], size),
                                OutputSpan<int32_t>(outputs[1], size));
    return Status();
  };
  return Status();
}

Status PlanPartition(const FeMachine& machine, const FePartition& in, FePlanned* planned) {
  PartitionInput input;
  Span<int32_t> permutation;
  FE_RETURN_IF_ERROR(ToSpan("ids", in.ids, &input.ids));
  FE_RETURN_IF_ERROR(ToSpan("shard_rows", in.shard_rows, &input.shard_rows));
  FE_RETURN_IF_ERROR(ToSpan("permutation", in.permutation, input.ids.size, 2, &permutation));
  if (in.strategy < 0 || in.strategy > static_cast<int32_t>(PartitionStrategy::kHash)) {
    return InvalidArgument("strategy must be 0 to 3, got ", in.strategy);
  }
  input.strategy = static_cast<PartitionStrategy>(in.strategy);
  planned->sizes.resize(static_cast<size_t>(input.shard_rows.size));
  const auto shards_of = [sizes = &planned->sizes](const FeArray* outputs) {
    std::vector<Span<int64_t>> shards;
    for (const int64_t size : *sizes) shards.push_back(OutputSpan<int64_t>(*outputs++, size));
    return shards;
  };
  if (const GpuExec* gpu = machine.gpu()) {
    auto plan = std::make_shared<GpuPartitionPlan>();
    FE_RETURN_IF_ERROR(fused_embedding::PlanPartition(*gpu, input, permutation,
                                                      AsSpan(planned->sizes), plan.get()));
    planned->run = [=](const FeArray* outputs) {
      const std::vector<Span<int64_t>> shards = shards_of(outputs);
      return RunPartition(*gpu, input, *plan, permutation, AsSpan(shards));
    };
    return Status();
  }
  FE_RETURN_IF_ERROR(fused_embedding::PlanPartition(input, permutation, AsSpan(planned->sizes)));
  planned->run = [=](const FeArray* outputs) {
    const std::vector<Span<int64_t>> shards = shards_of(outputs);
    RunPartition(input, permutation, AsSpan(shards));
    return Status();
  };
  return Status();
}

namespace {

using Planner = Status (*)(const FeMachine& machine, const void* in, FePlanned* planned);

template <typename In, Status (*kPlan)(const FeMachine&, const In&, FePlanned*)>
Status PlanOf(const FeMachine& machine, const void* in, FePlanned* planned) {
  return kPlan(machine, *static_cast<const In*>(in), planned);
}

struct Lookup {
  const char* name;
  Planner plan;
};

constexpr Lookup kLookups[] = {
    {"copied", PlanOf<FeCopied, PlanCopied>},
    {"gather", PlanOf<FeGather, PlanGather>},
    {"prune_and_fill", PlanOf<FePruneAndFill, PlanPruneAndFill>},
    {"unique", PlanOf<FeUnique, PlanUnique>},
    {"partition", PlanOf<FePartition, PlanPartition>},
    {"post_lookup", PlanOf<FePairs, PlanPostLookup>},
    {"post_lookup_grad", PlanOf<FePairs, PlanPostLookupGrad>},
    {"group_lookup", PlanOf<FeGroup, PlanGroupLookup>},
    {"group_lookup_grad", PlanOf<FeGroup, PlanGroupLookupGrad>},
    {"table_group_lookup", PlanOf<FeGroup, PlanTableGroupLookup>},
    {"sparse_apply", PlanOf<FeSparseApply, PlanSparseApply>},
    {"group_lookup_apply", PlanOf<FeGroupApply, PlanGroupLookupApply>},
    {"table_find", PlanOf<FeTableKeys, PlanTableFind>},
    {"table_find_or_insert", PlanOf<FeTableKeys, PlanTableFindOrInsert>},
    {"table_erase", PlanOf<FeTableKeys, PlanTableErase>},
    {"table_apply", PlanOf<FeTableApply, PlanTableApply>},
};

}  // namespace
}  // namespace c_api

Status PlanByName(const FeMachine& machine, const std::string& lookup, const void* in,
                  FePlanned* planned) {
  for (const c_api::Lookup& known : c_api::kLookups) {
    if (lookup == known.name) return known.plan(machine, in, planned);
  }
  return InvalidArgument("there is no lookup ", lookup, "; core_api.h lists them");
}

}  // namespace fused_embedding
