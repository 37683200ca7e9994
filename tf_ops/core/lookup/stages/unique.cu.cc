#include "tf_ops/core/lookup/stages/unique.cu.h"

#include <limits>
#include <vector>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/base/hash.h"
#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {
namespace {

// A table's slots: open addressing over positions, as on the CPU, at most half full.
struct TableSlots {
  int64_t end;    // of the table's ids
  int64_t first;  // slot
  uint32_t mask;  // of the table's slots
};

struct Slots {
  const TableSlots* tables;  // [num_tables]
  int64_t num_tables;
  uint32_t* positions;  // the first position of an id so far, or kNoPosition: free

  __device__ const TableSlots& OfPosition(int64_t position) const {
    return tables[ItemOfPosition(num_tables, position, [&](int64_t t) { return tables[t].end; })];
  }
};

// Leaves the first position of each id in its slot, and says which slot that is.
//
// An entry only ever changes to a smaller position of the same id. So a read that another thread
// overtakes misleads nobody: what a slot holds does not depend on who comes first, only where it is
// does.
template <typename Id>
__global__ void InsertKernel(const Id* __restrict__ ids, const bool* __restrict__ is_used,
                             int64_t num_ids, Slots slots, uint32_t* __restrict__ slot_of) {
  for (int64_t i = ThreadOfGrid(); i < num_ids; i += NumThreadsOfGrid()) {
    if (is_used && !is_used[i]) continue;
    const TableSlots& table = slots.OfPosition(i);
    const Id id = ids[i];
    const uint32_t position = static_cast<uint32_t>(i);
    uint32_t slot = static_cast<uint32_t>(Mix64(static_cast<uint64_t>(int64_t{id}))) & table.mask;
    for (;; slot = (slot + 1) & table.mask) {
      uint32_t* entry = slots.positions + table.first + slot;
      uint32_t stored = *const_cast<volatile uint32_t*>(entry);
      if (stored == kNoPosition) stored = atomicCAS(entry, kNoPosition, position);
      if (stored == kNoPosition) break;
      if (ids[stored] != id) continue;
      if (position < stored) atomicMin(entry, position);
      break;
    }
    slot_of[i] = slot;
  }
}

// Turns the slots of positions into the first positions that they hold. `is_first` has one element
// more than there are ids, so that its sums end with the number of unique ids.
__global__ void ReadSlotsKernel(const bool* __restrict__ is_used, int64_t num_ids, Slots slots,
                                uint32_t* __restrict__ first, int32_t* __restrict__ is_first) {
  for (int64_t i = ThreadOfGrid(); i <= num_ids; i += NumThreadsOfGrid()) {
    uint32_t position = kNoPosition;
    if (i < num_ids) {
      if (!is_used || is_used[i]) {
        position = slots.positions[slots.OfPosition(i).first + first[i]];
      }
      first[i] = position;
    }
    is_first[i] = position == static_cast<uint32_t>(i);
  }
}

__global__ void ReadAtKernel(const int32_t* __restrict__ numbers,
                             const int64_t* __restrict__ positions, int64_t size,
                             int32_t* __restrict__ out) {
  for (int64_t i = ThreadOfGrid(); i < size; i += NumThreadsOfGrid()) {
    out[i] = numbers[positions[i]];
  }
}

template <typename Id, typename Index>
struct UniqueOut {
  Index* unique_idx;  // [n]
  Id* unique_ids;     // [num_unique]
  // [num_unique]. Unsigned, for atomicAdd has no signed 64 bits.
  std::conditional_t<sizeof(Index) == 8, unsigned long long, unsigned>* counts;
};

template <typename Id, typename Index>
__global__ void NumberKernel(const Id* __restrict__ ids, int64_t num_ids,
                             const uint32_t* __restrict__ first,
                             const int32_t* __restrict__ numbers, UniqueOut<Id, Index> out) {
  for (int64_t i = ThreadOfGrid(); i < num_ids; i += NumThreadsOfGrid()) {
    const int32_t number = numbers[first[i]];
    out.unique_idx[i] = number;
    if (first[i] == static_cast<uint32_t>(i)) out.unique_ids[number] = ids[i];
    atomicAdd(out.counts + number, std::remove_pointer_t<decltype(out.counts)>{1});
  }
}

}  // namespace

template <typename Id>
Status NumberFirst(const GpuExec& exec, const IdsOfTables<Id>& in, GpuUniquePlan* plan) {
  const int64_t num_ids = in.ids.size;
  FE_RETURN_IF_ERROR(CheckNumPairs(num_ids));
  std::vector<TableSlots> tables;
  int64_t num_slots = 0, begin = 0;
  for (const int64_t end : in.table_ends) {
    int64_t capacity = 16;
    while (capacity < 2 * (end - begin)) capacity *= 2;
    tables.push_back({end, num_slots, static_cast<uint32_t>(capacity - 1)});
    num_slots += capacity;
    begin = end;
  }
  DeviceBuffer<TableSlots> device_tables;
  DeviceBuffer<uint32_t> positions;
  DeviceBuffer<int32_t> is_first;
  FE_RETURN_IF_ERROR(Upload<TableSlots>(exec, AsSpan(tables), &device_tables));
  FE_RETURN_IF_ERROR(positions.Allocate(exec, num_slots));
  FE_RETURN_IF_ERROR(is_first.Allocate(exec, num_ids + 1));
  FE_RETURN_IF_ERROR(plan->first.Allocate(exec, num_ids));
  FE_RETURN_IF_ERROR(plan->numbers.Allocate(exec, num_ids + 1));
  static_assert(kNoPosition == 0xffffffff, "what Fill writes");
  FE_RETURN_IF_ERROR(Fill(exec, 0xff, positions.span()));
  const Slots slots = {device_tables.data(), static_cast<int64_t>(tables.size()), positions.data()};
  FE_RETURN_IF_ERROR(Launch(exec, num_ids, InsertKernel<Id>, in.ids.data, in.is_used, num_ids,
                            slots, plan->first.data()));
  FE_RETURN_IF_ERROR(Launch(exec, num_ids + 1, ReadSlotsKernel, in.is_used, num_ids, slots,
                            plan->first.data(), is_first.data()));
  return ExclusiveSum<int32_t>(exec, is_first.span(), plan->numbers.span());
}

Status NumbersBefore(const GpuExec& exec, const GpuUniquePlan& plan, Span<const int64_t> positions,
                     DeviceBuffer<int32_t>* numbers) {
  DeviceBuffer<int64_t> device_positions;
  FE_RETURN_IF_ERROR(Upload<int64_t>(exec, positions, &device_positions));
  FE_RETURN_IF_ERROR(numbers->Allocate(exec, positions.size));
  return Launch(exec, positions.size, ReadAtKernel, plan.numbers.data(), device_positions.data(),
                positions.size, numbers->data());
}

template <typename Id, typename Index>
Status PlanUnique(const GpuExec& exec, Span<const Id> ids, GpuUniquePlan* plan) {
  if (ids.size > std::numeric_limits<Index>::max()) {
    return TooManyForIndex(ids.size, 8 * sizeof(Index));
  }
  FE_RETURN_IF_ERROR(NumberFirst<Id>(exec, {ids, nullptr, {&ids.size, 1}}, plan));
  int32_t num_unique = 0;
  FE_RETURN_IF_ERROR(ReadValue(exec, plan->numbers.data() + ids.size, &num_unique));
  plan->num_unique = num_unique;
  return Status();
}

template <typename Id, typename Index>
Status RunUnique(const GpuExec& exec, Span<const Id> ids, const GpuUniquePlan& plan,
                 const GpuUniqueOutput<Id, Index>& out) {
  const UniqueOut<Id, Index> raw_out = {
      out.unique_idx.data, out.unique_ids.data,
      reinterpret_cast<decltype(UniqueOut<Id, Index>::counts)>(out.counts.data)};
  FE_RETURN_IF_ERROR(Fill(exec, 0, out.counts));
  return Launch(exec, ids.size, NumberKernel<Id, Index>, ids.data, ids.size, plan.first.data(),
                plan.numbers.data(), raw_out);
}

template Status NumberFirst(const GpuExec&, const IdsOfTables<int64_t>&, GpuUniquePlan*);

#define FE_INSTANTIATE(Id, Index)                                                        \
  template Status PlanUnique<Id, Index>(const GpuExec&, Span<const Id>, GpuUniquePlan*); \
  template Status RunUnique(const GpuExec&, Span<const Id>, const GpuUniquePlan&,        \
                            const GpuUniqueOutput<Id, Index>&);
FE_INSTANTIATE(int32_t, int32_t)
FE_INSTANTIATE(int32_t, int64_t)
FE_INSTANTIATE(int64_t, int32_t)
FE_INSTANTIATE(int64_t, int64_t)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
