// Tables by key in the memory of a GPU, and lookups in them.

#include <memory>
#include <string>
#include <vector>

#include "tf_ops/c_api/arrays.h"
#include "tf_ops/c_api/plans.h"
#include "tf_ops/c_api/rule_input.h"
#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/optimizer/apply.cu.h"
#include "tf_ops/core/table/gpu/gpu_table.h"

struct FeGpuTable {
  std::unique_ptr<fused_embedding::GpuTable> table;
};

namespace fused_embedding {
namespace c_api {
namespace {

// The optimizer's name: its slots are step/accumulator and so on.
constexpr char kSlotPrefix[] = "step";

// The keys of a call on one table.
struct KeysOfTable {
  GpuTable* table = nullptr;
  int64_t end = 0;
  Span<const int64_t> keys;
  int64_t step = 0;
  const GpuExec* gpu = nullptr;

  GpuTableKeys view() const { return {{&table, 1}, {&end, 1}, keys}; }
  int64_t value_bytes() const { return table->config().layout.value_bytes(); }
};

Status ToKeys(const FeMachine& machine, FeGpuTable* table, const FeArray& in, KeysOfTable* keys) {
  if (machine.gpu() == nullptr) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "a GPU has the table; a CPU has table_group_lookup");
  }
  if (table == nullptr) return InvalidArgument("table must not be null");
  FE_RETURN_IF_ERROR(ToSpan("keys", in, &keys->keys));
  keys->table = table->table.get();
  keys->end = keys->keys.size;
  keys->gpu = machine.gpu();
  return Status();
}
Status ToKeys(const FeMachine& machine, const FeTableKeys& in, KeysOfTable* keys) {
  keys->step = in.step;
  return ToKeys(machine, in.table, in.keys, keys);
}

Status ToSlots(const FeGpuTableConfig& in, std::vector<Slot>* slots) {
  if (in.rule == nullptr) return Status();
  RuleInput step;
  FE_RETURN_IF_ERROR(ToRule(in.rule, in.hyperparameters, &step));
  *slots = step.rule.Slots(in.dim, step.numbers());
  for (Slot& slot : *slots) slot.name = std::string(kSlotPrefix) + "/" + slot.name;
  return Status();
}

// The sizes of one output of `bytes` for each key.
Status SetSize(const char* name, const KeysOfTable& keys, int64_t bytes, FePlanned* planned) {
  int64_t size = 0;
  FE_RETURN_IF_ERROR(ToSize(name, keys.keys.size, bytes, &size));
  planned->sizes = {size};
  return Status();
}

// Calls run(GpuLookupOutput) with the values that it writes.
template <typename Run>
Status WithOutput(const KeysOfTable& keys, const FeArray& values, const Run& run) {
  DeviceBuffer<int64_t> handles;
  FE_RETURN_IF_ERROR(handles.Allocate(*keys.gpu, keys.keys.size));
  char* const data = static_cast<char*>(values.data);
  return run(GpuLookupOutput{handles.span(), {&data, 1}});
}

}  // namespace

Status PlanTableFind(const FeMachine& machine, const FeTableKeys& in, FePlanned* planned) {
  KeysOfTable keys;
  FE_RETURN_IF_ERROR(ToKeys(machine, in, &keys));
  FE_RETURN_IF_ERROR(SetSize("values", keys, keys.value_bytes(), planned));
  planned->run = [keys](const FeArray* outputs) {
    return WithOutput(keys, outputs[0], [&](const GpuLookupOutput& out) {
      return FindInGpuTables(*keys.gpu, keys.view(), out);
    });
  };
  return Status();
}

Status PlanTableFindOrInsert(const FeMachine& machine, const FeTableKeys& in, FePlanned* planned) {
  KeysOfTable keys;
  FE_RETURN_IF_ERROR(ToKeys(machine, in, &keys));
  FE_RETURN_IF_ERROR(SetSize("values", keys, keys.value_bytes(), planned));
  auto plan = std::make_shared<GpuInsertPlan>();
  FE_RETURN_IF_ERROR(PlanGpuInsert(*keys.gpu, keys.view(), plan.get()));
  planned->run = [keys, plan](const FeArray* outputs) {
    return WithOutput(keys, outputs[0], [&](const GpuLookupOutput& out) {
      const GpuUses uses = {{}, {}, {&keys.step, 1}};
      return RunGpuFindOrInsert(*keys.gpu, keys.view(), uses, *plan, {}, out);
    });
  };
  return Status();
}

Status PlanTableErase(const FeMachine& machine, const FeTableKeys& in, FePlanned* planned) {
  KeysOfTable keys;
  FE_RETURN_IF_ERROR(ToKeys(machine, in, &keys));
  planned->sizes = {keys.keys.size};
  planned->run = [keys](const FeArray* outputs) {
    return EraseFromGpuTables(*keys.gpu, keys.view(), OutputSpan<bool>(outputs[0], keys.end));
  };
  return Status();
}

Status PlanTableApply(const FeMachine& machine, const FeTableApply& in, FePlanned* planned) {
  KeysOfTable keys;
  FE_RETURN_IF_ERROR(ToKeys(machine, in.table, in.keys, &keys));
  auto step = std::make_shared<RuleInput>();
  FE_RETURN_IF_ERROR(ToRule(in.rule, in.hyperparameters, step.get()));
  const RowLayout& layout = keys.table->config().layout;
  const char* grads = static_cast<const char*>(in.grads.data);
  FE_RETURN_IF_ERROR(VisitType(static_cast<int32_t>(layout.value_type), [&](auto value) {
    Span<const decltype(value)> span;
    return ToSpan("grads", in.grads, keys.end, layout.dim, &span);
  }));
  planned->run = [keys, step, grads](const FeArray*) {
    DeviceBuffer<int64_t> handles;
    FE_RETURN_IF_ERROR(handles.Allocate(*keys.gpu, keys.keys.size));
    FE_RETURN_IF_ERROR(FindInGpuTables(*keys.gpu, keys.view(), {handles.span()}));
    const GpuApplyInput of_table = {keys.table, handles.span(), grads, kSlotPrefix};
    return Apply(*keys.gpu, step->rule, step->numbers(), {&of_table, 1});
  };
  return Status();
}

Status OpenGpuTable(const FeMachine& machine, const FeGpuTableConfig& in, FeGpuTable** opened) {
  if (machine.gpu() == nullptr) {
    return MakeStatus(StatusCode::kUnimplemented, "a table of this kind needs a GPU");
  }
  if (in.eviction < 0 || in.eviction > static_cast<int32_t>(GpuEviction::kLfu)) {
    return InvalidArgument("eviction must be 0 to 2, got ", in.eviction);
  }
  GpuTableConfig config;
  FE_RETURN_IF_ERROR(VisitType(in.dtype, [](auto) { return Status(); }));
  config.layout.value_type = static_cast<ValueType>(in.dtype);  // in the same order
  config.layout.dim = in.dim;
  FE_RETURN_IF_ERROR(ToSlots(in, &config.layout.slots));
  config.initializer = {InitializerKind::kUniform, in.initial_low, in.initial_high, 0, {}};
  config.eviction = static_cast<GpuEviction>(in.eviction);
  config.max_bytes = in.max_bytes;
  config.min_buckets = in.min_buckets;
  auto table = std::make_unique<FeGpuTable>();
  FE_RETURN_IF_ERROR(GpuTable::Create(*machine.gpu(), config, &table->table));
  *opened = table.release();
  return Status();
}

void CloseGpuTable(FeGpuTable* table) { std::unique_ptr<FeGpuTable>{table}.reset(); }

FeGpuTableSizes SizesOf(const FeGpuTable& table) {
  return {table.table->num_buckets(), table.table->memory_bytes()};
}

}  // namespace c_api
}  // namespace fused_embedding
