#include "tf_ops/core/table/gpu/training.cu.h"

#include <utility>

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/table/gpu/batch.cu.h"
#include "tf_ops/core/table/gpu/count_keys.cu.h"

namespace fused_embedding {
namespace {

// A table of a batch, and what it counts.
struct AdmittingTable {
  int64_t begin, end;       // of its keys
  int64_t first_count = 0;  // where they come again; not used unless:
  int64_t min_frequency = 0;
  GpuTableView counts = {};

  __device__ int64_t CountPosition(int64_t position) const {
    return first_count + position - begin;
  }
  // Of a key whose count is at this handle, or -1.
  __device__ int64_t FrequencyAt(int64_t handle) const {
    if (handle < 0) return 0;
    const Bucket* bucket = counts.bucket(static_cast<uint32_t>(handle / kEntries));
    return bucket->frequencies[handle % kEntries];
  }
};

struct Admitting {
  const AdmittingTable* tables;  // [num_tables]
  int64_t num_tables;
  int64_t num_keys;  // without those that come again

  // Calls body(table, position) for the keys of tables that count.
  template <typename Body>
  __device__ void ForEachCounted(const Body& body) const {
    for (int64_t i = ThreadOfGrid(); i < num_keys; i += NumThreadsOfGrid()) {
      const AdmittingTable& table =
          tables[ItemOfPosition(num_tables, i, [&](int64_t t) { return tables[t].end; })];
      if (table.min_frequency > 0) body(table, i);
    }
  }
};

// `is_used` and `counts` are those of a batch that uses all keys, and counts none again.
__global__ void AdmitKernel(Admitting in, const int64_t* __restrict__ handles,
                            bool* __restrict__ is_used, int32_t* __restrict__ counts) {
  in.ForEachCounted([&](const AdmittingTable& table, int64_t position) {
    constexpr int64_t kMaxCount = 0x7fffffff;
    const int64_t again = table.CountPosition(position);
    counts[again] = counts[position];
    if (handles[position] >= 0) return;
    const int64_t frequency = table.FrequencyAt(handles[again]) + counts[position];
    is_used[position] = frequency >= table.min_frequency;
    is_used[again] = !is_used[position] && frequency > 0;
    counts[position] = static_cast<int32_t>(frequency < kMaxCount ? frequency : kMaxCount);
  });
}

__global__ void HasRowKernel(const int64_t* __restrict__ handles, int64_t num_keys,
                             bool* __restrict__ has_row) {
  for (int64_t i = ThreadOfGrid(); i < num_keys; i += NumThreadsOfGrid()) {
    has_row[i] = handles[i] >= 0;
  }
}

Status UploadAdmitting(const GpuExec& exec, const GpuTableKeys& in,
                       const std::vector<CountedKeys>& counted,
                       DeviceBuffer<AdmittingTable>* tables) {
  std::vector<AdmittingTable> on_host;
  int64_t begin = 0;
  for (const int64_t end : in.ends) {
    on_host.push_back({begin, end});
    begin = end;
  }
  for (const CountedKeys& keys : counted) {
    const GpuTable& table = *in.tables[keys.table];
    AdmittingTable& admitting = on_host[static_cast<size_t>(keys.table)];
    admitting.first_count = keys.first;
    admitting.min_frequency = table.config().min_frequency;
    admitting.counts = table.counts()->view();
  }
  return Upload<AdmittingTable>(exec, AsSpan(on_host), tables);
}

GpuTableKeys KeysOf(const GpuTrainingPlan& plan) {
  return {AsSpan(plan.tables), AsSpan(plan.ends), plan.keys.span(), plan.is_used.data()};
}

// All keys, and those of tables that count once more.
Status JoinKeys(const GpuExec& exec, const GpuTableKeys& in, const GpuUses& uses,
                const std::vector<CountedKeys>& counted, GpuTrainingPlan* plan) {
  const int64_t n = in.keys.size, num_all = EndOf(counted, n);
  plan->tables.assign(in.tables.begin(), in.tables.end());
  plan->ends.assign(in.ends.begin(), in.ends.end());
  plan->steps.assign(uses.steps.begin(), uses.steps.end());
  for (const CountedKeys& keys : counted) {
    plan->tables.push_back(in.tables[keys.table]->counts());
    plan->ends.push_back(keys.first + keys.end - keys.begin);
    plan->steps.push_back(uses.steps[keys.table]);
  }
  FE_RETURN_IF_ERROR(plan->keys.Allocate(exec, num_all));
  FE_RETURN_IF_ERROR(plan->is_used.Allocate(exec, num_all));
  FE_RETURN_IF_ERROR(plan->counts.Allocate(exec, num_all));
  FE_RETURN_IF_ERROR(CopyArray(exec, in.keys, plan->keys.data()));
  FE_RETURN_IF_ERROR(CopyCounted(exec, counted, in.keys.data, plan->keys.data()));
  FE_RETURN_IF_ERROR(Fill(exec, 0, plan->is_used.span()));
  FE_RETURN_IF_ERROR(Fill<bool>(exec, 1, {plan->is_used.data(), n}));
  if (!uses.counts.empty()) return CopyArray(exec, uses.counts, plan->counts.data());
  const std::vector<int32_t> ones(static_cast<size_t>(n), 1);
  return CopyToDevice<int32_t>(exec, AsSpan(ones), plan->counts.data());
}

// The evicted rows of the tables alone: no one wants those of their counts.
class EvictedOfTables {
 public:
  Status Init(const GpuExec& exec, const GpuEvicted& wanted, size_t num_tables) {
    if (wanted.rows.empty()) return Status();
    rows_.assign(wanted.rows.begin(), wanted.rows.end());
    rows_.resize(num_tables);
    return num_rows_.Allocate(exec, static_cast<int64_t>(num_tables));
  }
  GpuEvicted out() const { return {AsSpan(rows_), num_rows_.span()}; }
  Status CopyTo(const GpuExec& exec, const GpuEvicted& wanted) const {
    if (wanted.rows.empty()) return Status();
    return CopyArray<int32_t>(exec, {num_rows_.data(), wanted.num_rows.size}, wanted.num_rows.data);
  }

 private:
  std::vector<GpuRows> rows_;
  DeviceBuffer<int32_t> num_rows_;
};

// Erases the counts of keys that have a row now.
Status EraseTakenOver(const GpuExec& exec, const GpuTableKeys& in, Span<const int64_t> handles) {
  DeviceBuffer<bool> has_row;
  FE_RETURN_IF_ERROR(has_row.Allocate(exec, handles.size));
  FE_RETURN_IF_ERROR(
      Launch(exec, handles.size, HasRowKernel, handles.data, handles.size, has_row.data()));
  return EraseCounts(exec, {in.tables, in.ends, in.keys, has_row.data()});
}

}  // namespace

Status PlanGpuTraining(const GpuExec& exec, const GpuTableKeys& in, const GpuUses& uses,
                       GpuTrainingPlan* plan) {
  *plan = {};
  FE_RETURN_IF_ERROR(CheckGpuTableKeys(in));
  FE_RETURN_IF_ERROR(CheckGpuUses(in, uses));
  const std::vector<CountedKeys> counted = FindCountedKeys(in, in.keys.size);
  if (counted.empty()) return PlanGpuInsert(exec, in, &plan->insert);
  FE_RETURN_IF_ERROR(JoinKeys(exec, in, uses, counted, plan));
  DeviceBuffer<int64_t> handles;
  DeviceBuffer<AdmittingTable> tables;
  FE_RETURN_IF_ERROR(handles.Allocate(exec, plan->keys.size()));
  FE_RETURN_IF_ERROR(UploadAdmitting(exec, in, counted, &tables));
  GpuTableKeys all = KeysOf(*plan);
  all.is_used = nullptr;
  FE_RETURN_IF_ERROR(FindInGpuTables(exec, all, {handles.span()}));
  FE_RETURN_IF_ERROR(Launch(exec, in.keys.size, AdmitKernel,
                            Admitting{tables.data(), tables.size(), in.keys.size}, handles.data(),
                            plan->is_used.data(), plan->counts.data()));
  return PlanGpuInsert(exec, KeysOf(*plan), &plan->insert);
}

Status RunGpuTraining(const GpuExec& exec, const GpuTableKeys& in, const GpuUses& uses,
                      const GpuTrainingPlan& plan, const GpuEvicted& evicted,
                      const GpuLookupOutput& out) {
  if (plan.tables.empty()) {
    return RunGpuFindOrInsert(exec, in, uses, plan.insert, evicted, out);
  }
  FE_RETURN_IF_ERROR(CheckGpuTableKeys(in));
  FE_RETURN_IF_ERROR(CheckGpuLookupOutput(in, out));
  DeviceBuffer<int64_t> handles;
  EvictedOfTables evicted_of_tables;
  FE_RETURN_IF_ERROR(handles.Allocate(exec, plan.keys.size()));
  FE_RETURN_IF_ERROR(evicted_of_tables.Init(exec, evicted, plan.tables.size()));
  const GpuUses joined = {plan.counts.span(), {}, AsSpan(plan.steps)};
  FE_RETURN_IF_ERROR(RunGpuFindOrInsert(exec, KeysOf(plan), joined, plan.insert,
                                        evicted_of_tables.out(), {handles.span()}));
  FE_RETURN_IF_ERROR(evicted_of_tables.CopyTo(exec, evicted));
  FE_RETURN_IF_ERROR(CopyArray<int64_t>(exec, {handles.data(), in.keys.size}, out.handles.data));
  FE_RETURN_IF_ERROR(EraseTakenOver(exec, in, out.handles));
  if (out.values.empty()) return Status();
  GpuTableKeys used = in;
  used.is_used = plan.is_used.data();
  UploadedBatch uploaded;
  FE_RETURN_IF_ERROR(uploaded.Upload(exec, TablesOfBatch(used, out.values), used));
  return ReadValues(exec, uploaded.batch(), out.handles.data, /*is_insert=*/true);
}

}  // namespace fused_embedding
