#include "tf_ops/core/optimizer/apply.cu.h"

#include <algorithm>
#include <array>
#include <vector>

#include "tf_ops/core/optimizer/update_rows.cu.h"
#include "tf_ops/core/table/gpu/buckets.cu.h"

namespace fused_embedding {
namespace {

// The rows of a GpuTable by their handles: values, and then slots, at offsets of the layout.
template <typename T>
struct RowsByHandle {
  using Value = T;
  using SlotValue = ComputeType<T>;
  static constexpr bool kHasNumbers = true;

  const GpuTableView* view = nullptr;  // in device memory
  int64_t slot_offsets[kMaxSlots] = {};
  int64_t dim = 0;

  __device__ T* value(int64_t handle) const { return reinterpret_cast<T*>(view->row(handle)); }
  __device__ SlotValue* slot(int64_t handle, int k) const {
    return reinterpret_cast<SlotValue*>(view->row(handle) + slot_offsets[k]);
  }
  __device__ SlotValue* number(int64_t handle) const { return slot(handle, 0); }
};

// Rows begin at multiples of 16 bytes.
template <typename T>
uint64_t AddressBits(const RowsByHandle<T>& table, int64_t num_slots) {
  uint64_t bits = 0;
  for (int64_t k = 0; k < num_slots; ++k) bits |= static_cast<uint64_t>(table.slot_offsets[k]);
  return bits;
}

using SlotOffsets = std::array<int64_t, kMaxSlots>;

// From the beginning of a row's value.
Status FindSlots(const RuleInfo& rule, Span<const double> hyperparameters, const GpuApplyInput& in,
                 SlotOffsets* offsets) {
  const RowLayout& layout = in.table->config().layout;
  size_t k = 0;
  for (const Slot& slot : rule.Slots(layout.dim, hyperparameters)) {
    const std::string name = in.slot_prefix + "/" + slot.name;
    const int64_t offset = layout.SlotOffset(name);
    if (offset < 0) {
      return MakeStatus(StatusCode::kFailedPrecondition, "the table has no slot ", name,
                        "; create it with the slots of the optimizer");
    }
    (*offsets)[k++] = offset - layout.value_offset();
  }
  return Status();
}

// The step on the tables of one value type. `offsets`: of each input.
template <typename T>
Status ApplyToType(const GpuExec& exec, const RuleInfo& rule, Span<const double> hyperparameters,
                   ValueType type, Span<const GpuApplyInput> inputs,
                   const std::vector<SlotOffsets>& offsets) {
  std::vector<GpuTableView> views;
  std::vector<RowsUpdate<RowsByHandle<T>>> updates;
  for (int64_t i = 0; i < inputs.size; ++i) {
    const GpuApplyInput& in = inputs[i];
    const RowLayout& layout = in.table->config().layout;
    if (layout.value_type != type) continue;
    RowsUpdate<RowsByHandle<T>> update;
    const SlotOffsets& of_table = offsets[static_cast<size_t>(i)];
    std::copy(of_table.begin(), of_table.end(), update.table.slot_offsets);
    update.table.dim = layout.dim;
    update.rows = in.handles.data;
    update.grads = reinterpret_cast<const T*>(in.grads);
    update.num_rows = in.handles.size;
    updates.push_back(update);
    views.push_back(in.table->view());
  }
  if (updates.empty()) return Status();
  DeviceBuffer<GpuTableView> device_views;
  FE_RETURN_IF_ERROR(Upload<GpuTableView>(exec, AsSpan(views), &device_views));
  for (size_t t = 0; t < updates.size(); ++t) updates[t].table.view = device_views.data() + t;
  return UpdateRows(exec, rule, hyperparameters, updates);
}

}  // namespace

Status Apply(const GpuExec& exec, const RuleInfo& rule, Span<const double> hyperparameters,
             Span<const GpuApplyInput> inputs) {
  FE_RETURN_IF_ERROR(CheckHyperparameters(rule, hyperparameters));
  std::vector<SlotOffsets> offsets(static_cast<size_t>(inputs.size));
  for (size_t i = 0; i < offsets.size(); ++i) {
    FE_RETURN_IF_ERROR(
        FindSlots(rule, hyperparameters, inputs[static_cast<int64_t>(i)], &offsets[i]));
  }
  int type = 0;
#define FE_APPLY(T)                                                                               \
  FE_RETURN_IF_ERROR((ApplyToType<T>(exec, rule, hyperparameters, static_cast<ValueType>(type++), \
                                     inputs, offsets)));
  FE_FOR_EACH_VALUE_TYPE(FE_APPLY)
#undef FE_APPLY
  return Status();
}

}  // namespace fused_embedding
