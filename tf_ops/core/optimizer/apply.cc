#include "tf_ops/core/optimizer/apply.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "tf_ops/core/base/tasks.h"
#include "tf_ops/core/optimizer/rule.h"
#include "tf_ops/core/optimizer/update_rows.h"

namespace fused_embedding {
namespace {

using SlotOffsets = std::array<int64_t, kMaxSlots>;

UpdateRows FindUpdateRows(int64_t rule, ValueType type) {
  switch (type) {
    case ValueType::kFloat:
      return UpdateRowsOfRules<float>()[rule];
    case ValueType::kDouble:
      return UpdateRowsOfRules<double>()[rule];
    case ValueType::kHalf:
      return UpdateRowsOfRules<Half>()[rule];
    case ValueType::kBFloat16:
      return UpdateRowsOfRules<BFloat16>()[rule];
  }
  return nullptr;
}

// Byte offsets of `slots` in a row; false if one is not there. Called for each group of rows: it
// allocates nothing.
bool FindSlots(const RowLayout& layout, const std::vector<Slot>& slots, SlotOffsets* offsets) {
  for (size_t i = 0; i < slots.size(); ++i) {
    int64_t offset = layout.slots_offset();
    const auto is_it = [&](const Slot& slot) {
      if (slot == slots[i]) return true;
      offset += slot.width * layout.slot_number_bytes();
      return false;
    };
    if (std::none_of(layout.slots.begin(), layout.slots.end(), is_it)) return false;
    (*offsets)[i] = offset;
  }
  return true;
}

// Those of a rule, as a table names them.
std::vector<Slot> SlotsOf(const RuleInfo& rule, const ApplyInput& in) {
  std::vector<Slot> slots = rule.Slots(in.table->config().layout.dim, in.hyperparameters);
  for (Slot& slot : slots) slot.name = in.slot_prefix + "/" + slot.name;
  return slots;
}

Status CheckHandles(const ApplyInput& in) {
  if (in.handles.empty() || in.handles.size == in.keys.size) return Status();
  return InvalidArgument("handles must be empty or have one element for each of the ", in.keys.size,
                         " keys, got ", in.handles.size);
}

Status CheckTables(Span<const ApplyInput> inputs) {
  std::vector<const EmbeddingTable*> tables;
  for (const ApplyInput& in : inputs) {
    FE_RETURN_IF_ERROR(CheckHandles(in));
    tables.push_back(in.table);
  }
  std::sort(tables.begin(), tables.end());
  if (std::adjacent_find(tables.begin(), tables.end()) == tables.end()) return Status();
  return InvalidArgument(
      "a table is there twice, but each may be but once; sum its gradients first, or update it in "
      "two steps");
}

Status UpdateTable(const CpuExec& exec, const RuleInfo& rule, const std::vector<Slot>& slots,
                   const ApplyInput& in) {
  const int64_t dim = in.table->config().layout.dim;
  const UpdateRows update_rows = FindUpdateRows(rule.index, in.table->config().layout.value_type);
  // A restore beside this may replace the table's content by one without the slots.
  std::atomic<bool> is_slot_missing{false};
  FE_RETURN_IF_ERROR(in.table->ForEachRow(
      exec, in.keys, in.handles, [&](const RowLayout& layout, const RowBatch& batch) {
        SlotOffsets slot_offsets;
        if (!FindSlots(layout, slots, &slot_offsets)) {
          is_slot_missing = true;
          return;
        }
        update_rows({batch, in.grads, dim, layout.row_bytes(), layout.value_offset(),
                     slot_offsets.data(), in.hyperparameters.data});
      }));
  if (!is_slot_missing) return Status();
  return Status(StatusCode::kFailedPrecondition,
                "the table lost the slots of " + in.slot_prefix +
                    " while they were updated; do not restore it beside a training step");
}

}  // namespace

Status Apply(const CpuExec& exec, const RuleInfo& rule, Span<const ApplyInput> inputs) {
  FE_RETURN_IF_ERROR(CheckTables(inputs));
  std::vector<std::vector<Slot>> slots;
  std::vector<int64_t> sizes;
  for (const ApplyInput& in : inputs) {
    FE_RETURN_IF_ERROR(CheckHyperparameters(rule, in.hyperparameters));
    slots.push_back(SlotsOf(rule, in));
    FE_RETURN_IF_ERROR(in.table->CheckSlots(AsSpan(slots.back())));
    sizes.push_back(in.keys.size);
  }
  for (int64_t i = 0; i < inputs.size; ++i) {
    FE_RETURN_IF_ERROR(inputs[i].table->EnsureSlots(AsSpan(slots[static_cast<size_t>(i)])));
  }
  return RunTasks(exec, AsSpan(sizes), EmbeddingTable::kManyKeys, EmbeddingTable::kKeyNs,
                  [&](const CpuExec& table_exec, int64_t i) {
                    return UpdateTable(table_exec, rule, slots[static_cast<size_t>(i)], inputs[i]);
                  });
}

}  // namespace fused_embedding
