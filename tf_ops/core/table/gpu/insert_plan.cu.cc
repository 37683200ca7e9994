#include <algorithm>
#include <utility>
#include <vector>

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/batch.cu.h"
#include "tf_ops/core/table/gpu/growth.cu.h"
#include "tf_ops/core/table/gpu/owned_bucket.cu.h"

namespace fused_embedding {
namespace {

// Keys that do not fit into the free entries of their buckets.
struct Overflow {
  unsigned long long num_evicted, num_refused;  // atomicAdd has no signed 64 bits

  int64_t sum() const { return static_cast<int64_t>(num_evicted + num_refused); }
};

// The keys that the owners of their buckets handle.
struct Selection {
  const int64_t* handles;  // [num_keys]
  bool is_for_content;

  __device__ bool IsOwned(const Batch& batch, int64_t position) const {
    if (!batch.IsUsed(position)) return false;
    if (is_for_content || handles[position] < 0) return true;
    return batch.tables[batch.TableOf(position)].view.eviction == GpuEviction::kGiven;
  }
};

// [num_keys + 1]
__global__ void IsOwnedKernel(Batch batch, Selection selection, int32_t* __restrict__ is_owned) {
  for (int64_t i = ThreadOfGrid(); i <= batch.num_keys; i += NumThreadsOfGrid()) {
    is_owned[i] = i < batch.num_keys && selection.IsOwned(batch, i);
  }
}

// `before` [num_keys + 1] are the sums of IsOwnedKernel's flags.
__global__ void SelectKernel(Batch batch, const int32_t* __restrict__ before,
                             int32_t* __restrict__ positions, uint32_t* __restrict__ buckets) {
  for (int64_t i = ThreadOfGrid(); i < batch.num_keys; i += NumThreadsOfGrid()) {
    const int32_t to = before[i];
    if (before[i + 1] == to) continue;
    positions[to] = static_cast<int32_t>(i);
    buckets[to] = static_cast<uint32_t>(batch.BucketOf(i));
  }
}

__global__ void OrderKernel(Span<const int32_t> order_of_selected,
                            const int32_t* __restrict__ positions, int32_t* __restrict__ order) {
  for (int64_t i = ThreadOfGrid(); i < order_of_selected.size; i += NumThreadsOfGrid()) {
    order[i] = positions[order_of_selected[i]];
  }
}

__global__ void PinKernel(Batch batch, const int64_t* __restrict__ handles,
                          unsigned long long* __restrict__ pins) {
  for (int64_t i = ThreadOfGrid(); i < batch.num_keys; i += NumThreadsOfGrid()) {
    const int64_t handle = handles[i];
    if (handle < 0) continue;
    const TableOfBatch& table = batch.tables[batch.TableOf(i)];
    atomicOr(&pins[table.first_bucket + handle / kEntries], 1ull << (handle % kEntries));
  }
}

__global__ void CountOverflowKernel(SortedBatch sorted, const int64_t* __restrict__ handles,
                                    const unsigned long long* __restrict__ pins,
                                    Overflow* overflows) {
  ForEachBucket(sorted, [&](const Lanes& lanes, int64_t t, uint32_t number, const Range& run) {
    const TableOfBatch& table = sorted.batch.tables[t];
    OwnedBucket owned(lanes, table.view.eviction, table.view.bucket(number),
                      PinsOf(pins, table, number));
    int64_t num_missing = 0;
    for (int64_t i = run.begin; i < run.end; ++i) {
      const int64_t handle = handles[sorted.order[i]];
      if (handle < 0) {
        ++num_missing;
      } else {
        owned.Pin(static_cast<int>(handle % kEntries));
      }
    }
    const int num_free = owned.NumFree();
    const int64_t num_evictable = kEntries - num_free - owned.NumPinned();
    if (num_missing <= num_free || lanes.lane != 0) return;
    const int64_t num_over = num_missing - num_free;
    const int64_t num_evicted = num_over < num_evictable ? num_over : num_evictable;
    atomicAdd(&overflows[t].num_evicted, static_cast<unsigned long long>(num_evicted));
    atomicAdd(&overflows[t].num_refused, static_cast<unsigned long long>(num_over - num_evicted));
  });
}

// Finds the rows of the keys, and which keys owners handle: `before` as in SelectKernel. Waits for
// their number.
Status FindOwned(const GpuExec& exec, const Batch& batch, GpuInsertPlan* plan,
                 DeviceBuffer<int32_t>* before, int64_t* num_owned) {
  FE_RETURN_IF_ERROR(plan->handles.Allocate(exec, batch.num_keys));
  FE_RETURN_IF_ERROR(FindRows(exec, batch, plan->handles.data()));
  DeviceBuffer<int32_t> is_owned;
  FE_RETURN_IF_ERROR(is_owned.Allocate(exec, batch.num_keys + 1));
  FE_RETURN_IF_ERROR(before->Allocate(exec, batch.num_keys + 1));
  FE_RETURN_IF_ERROR(Launch(exec, batch.num_keys + 1, IsOwnedKernel, batch,
                            Selection{plan->handles.data(), plan->is_for_content},
                            is_owned.data()));
  FE_RETURN_IF_ERROR(
      ExclusiveSum<int32_t>(exec, Span<const int32_t>(is_owned.span()), before->span()));
  int32_t count = 0;
  Readback readback;
  readback.Add<int32_t>(before->data() + batch.num_keys, {&count, 1});
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  *num_owned = count;
  return Status();
}

Status SortOwned(const GpuExec& exec, const Batch& batch, const int32_t* before, int64_t num_owned,
                 GpuInsertPlan* plan) {
  DeviceBuffer<int32_t> positions;
  DeviceBuffer<uint32_t> unsorted;
  SortedKeys sorted;
  FE_RETURN_IF_ERROR(positions.Allocate(exec, num_owned));
  FE_RETURN_IF_ERROR(unsorted.Allocate(exec, num_owned));
  FE_RETURN_IF_ERROR(plan->order.Allocate(exec, num_owned));
  FE_RETURN_IF_ERROR(
      Launch(exec, batch.num_keys, SelectKernel, batch, before, positions.data(), unsorted.data()));
  FE_RETURN_IF_ERROR(SortByKey(exec, unsorted.span(), batch.num_buckets, &sorted));
  plan->buckets = std::move(sorted.keys);
  return Launch(exec, num_owned, OrderKernel, Span<const int32_t>(sorted.order.span()),
                positions.data(), plan->order.data());
}

// What this batch must not evict, where anything is evicted.
Status PinRows(const GpuExec& exec, const GpuTableKeys& in, const Batch& batch,
               GpuInsertPlan* plan) {
  const auto evicts = [](const GpuTable* table) {
    const GpuEviction eviction = table->config().eviction;
    return eviction == GpuEviction::kLru || eviction == GpuEviction::kLfu;
  };
  if (plan->is_for_content || !std::any_of(in.tables.begin(), in.tables.end(), evicts)) {
    return Status();
  }
  FE_RETURN_IF_ERROR(plan->pins.Allocate(exec, batch.num_buckets));
  FE_RETURN_IF_ERROR(Fill(exec, 0, plan->pins.span()));
  return Launch(exec, batch.num_keys, PinKernel, batch, plan->handles.data(), plan->pins.data());
}

// One round: finds and sorts the keys, and waits for what overflows of each table.
Status CountOverflows(const GpuExec& exec, const GpuTableKeys& in, GpuInsertPlan* plan,
                      std::vector<Overflow>* overflows) {
  overflows->assign(static_cast<size_t>(in.tables.size), {});
  UploadedBatch uploaded;
  FE_RETURN_IF_ERROR(uploaded.Upload(exec, TablesOfBatch(in, {}), in));
  const Batch& batch = uploaded.batch();
  DeviceBuffer<int32_t> before;
  int64_t num_owned = 0;
  FE_RETURN_IF_ERROR(FindOwned(exec, batch, plan, &before, &num_owned));
  if (num_owned == 0) return Status();
  FE_RETURN_IF_ERROR(SortOwned(exec, batch, before.data(), num_owned, plan));
  FE_RETURN_IF_ERROR(PinRows(exec, in, batch, plan));
  DeviceBuffer<Overflow> device_overflows;
  FE_RETURN_IF_ERROR(device_overflows.Allocate(exec, in.tables.size));
  FE_RETURN_IF_ERROR(Fill(exec, 0, device_overflows.span()));
  const SortedBatch sorted = {batch, num_owned, plan->buckets.data(), plan->order.data()};
  FE_RETURN_IF_ERROR(Launch(exec, num_owned * kBucketLanes, CountOverflowKernel, sorted,
                            plan->handles.data(), plan->pins.data(), device_overflows.data()));
  Readback readback;
  readback.Add<Overflow>(device_overflows.data(), AsSpan(*overflows));
  return readback.Wait(exec);
}

Status RowsDoNotFit(const GpuTable& table, int64_t t, int64_t num_over) {
  return ResourceExhausted("table ", t, " has no room for ", num_over, " of the keys in ",
                           table.num_buckets(), " buckets of ", kEntries,
                           " rows, and twice as many do not fit into max_bytes = ",
                           table.config().max_bytes, "; raise it, or choose an eviction");
}

Status Plan(const GpuExec& exec, const GpuTableKeys& in, bool is_for_content, GpuInsertPlan* plan) {
  FE_RETURN_IF_ERROR(CheckGpuTableKeys(in));
  std::vector<Overflow> overflows;
  for (std::vector<GpuTable*> growing;; growing.clear()) {
    *plan = {};
    plan->is_for_content = is_for_content;
    FE_RETURN_IF_ERROR(CountOverflows(exec, in, plan, &overflows));
    for (int64_t t = 0; t < in.tables.size; ++t) {
      const bool is_over = overflows[static_cast<size_t>(t)].sum() > 0;
      if (is_over && in.tables[t]->CanGrow()) growing.push_back(in.tables[t]);
    }
    if (growing.empty()) break;
    FE_RETURN_IF_ERROR(DoubleGpuTables(exec, growing));
  }
  for (int64_t t = 0; t < in.tables.size; ++t) {
    const Overflow& overflow = overflows[static_cast<size_t>(t)];
    const GpuTable& table = *in.tables[t];
    if (table.config().eviction == GpuEviction::kNone && overflow.sum() > 0) {
      return RowsDoNotFit(table, t, overflow.sum());
    }
    plan->num_changes.push_back(table.num_changes());
    plan->num_evicted.push_back(static_cast<int64_t>(overflow.num_evicted));
    plan->num_refused += static_cast<int64_t>(overflow.num_refused);
  }
  return Status();
}

}  // namespace

Status PlanGpuInsert(const GpuExec& exec, const GpuTableKeys& in, GpuInsertPlan* plan) {
  return Plan(exec, in, /*is_for_content=*/false, plan);
}

Status PlanGpuUpsert(const GpuExec& exec, const GpuTableKeys& in, GpuInsertPlan* plan) {
  return Plan(exec, in, /*is_for_content=*/true, plan);
}

Status CheckGpuInsertPlan(const GpuTableKeys& in, const GpuInsertPlan& plan, bool is_for_content) {
  bool is_current = plan.is_for_content == is_for_content && plan.handles.size() == in.keys.size &&
                    static_cast<int64_t>(plan.num_changes.size()) == in.tables.size;
  for (int64_t t = 0; is_current && t < in.tables.size; ++t) {
    is_current = plan.num_changes[static_cast<size_t>(t)] == in.tables[t]->num_changes();
  }
  if (is_current) return Status();
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "a plan must be made for the same keys, and run before any other change of ",
                    "its tables; call ", is_for_content ? "PlanGpuUpsert" : "PlanGpuInsert",
                    " again");
}

}  // namespace fused_embedding
