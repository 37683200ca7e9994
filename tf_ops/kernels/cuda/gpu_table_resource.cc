#include "tf_ops/kernels/cuda/gpu_table_resource.h"

#include <algorithm>
#include <utility>

#include "tensorflow/core/platform/logging.h"
#include "tf_ops/core/table/gpu/dram_copy.h"

namespace fused_embedding {
namespace {

Status CountRows(const GpuExec& exec, const GpuTable* table, int64_t* num_rows) {
  *num_rows = 0;
  if (table == nullptr) return Status();
  GpuExportPlan plan;
  FE_RETURN_IF_ERROR(PlanGpuExport(exec, *table, 0, table->num_buckets(), &plan));
  *num_rows = plan.num_rows;
  return Status();
}

}  // namespace

GpuTableResource::GpuTableResource(std::string name, std::unique_ptr<GpuTable> table,
                                   DeviceBuffer<unsigned long long> num_missing,
                                   bool is_initialized, std::string description)
    : AnyTableResource(/*is_frozen=*/false, is_initialized, std::move(description)),
      name_(std::move(name)),
      state_(std::make_unique<State>()),
      layout_(table->config().layout) {
  state_->table = std::move(table);
  state_->num_missing = std::move(num_missing);
}

InitializerConfig GpuTableResource::initializer() const {
  const std::lock_guard<std::mutex> lock(mutex());
  return table()->config().initializer;
}

Status GpuTableResource::ReadStatistics(tensorflow::OpKernelContext* ctx,
                                        TableStatistics* statistics) const {
  const std::lock_guard<std::mutex> lock(mutex());
  const GpuWork work(ctx);
  *statistics = counters();
  FE_RETURN_IF_ERROR(CountRows(work.exec(), table(), &statistics->size));
  FE_RETURN_IF_ERROR(CountRows(work.exec(), table()->counts(), &statistics->filtered));
  statistics->memory_bytes = table()->memory_bytes();
  // Lookups do not wait to count these. What they have inserted is there, or was removed.
  statistics->inserts = statistics->size - state_->num_given + statistics->evictions +
                        statistics->expirations + statistics->erasures;
  int64_t missing[2] = {};
  FE_RETURN_IF_ERROR(ReadCounters(work.exec(), state_->num_missing.span(), {missing, 2}));
  statistics->not_admitted = missing[0];
  statistics->misses = missing[0] + missing[1] + statistics->inserts;
  statistics->hits -= statistics->misses;
  return Status();
}

Status GpuTableResource::UpsertValues(const GpuExec& exec, const GpuTableKeys& in,
                                      const char* values) const {
  GpuInsertPlan plan;
  const GpuTableResource* const table_of_keys = this;
  FE_RETURN_IF_ERROR(InTables({&table_of_keys, 1}, PlanGpuUpsert(exec, in, &plan)));
  FE_RETURN_IF_ERROR(CheckNoneRefused(plan.num_refused));
  int64_t num_before = 0, num_after = 0;
  FE_RETURN_IF_ERROR(CountRows(exec, table(), &num_before));
  FE_RETURN_IF_ERROR(RunGpuUpsertValues(exec, in, values, step(), plan));
  FE_RETURN_IF_ERROR(CountRows(exec, table(), &num_after));
  counters().evictions += plan.num_evicted[0];
  state_->num_given += num_after - num_before + plan.num_evicted[0];
  return Status();
}

Status GpuTableResource::MakeDramTable(std::unique_ptr<EmbeddingTable>* dram) const {
  const std::lock_guard<std::mutex> lock(mutex());
  const GpuTableConfig& from = table()->config();
  TableConfig config;
  config.layout = layout_;
  config.initializer = from.initializer;
  config.no_permission_value = from.no_permission_value;
  if (from.min_frequency > 0) {
    config.admission.kind = AdmissionKind::kCounter;
    config.admission.min_frequency = from.min_frequency;
  }
  return EmbeddingTable::Create(config, dram);
}

Status GpuTableResource::CopyToDram(tensorflow::OpKernelContext* ctx,
                                    std::unique_ptr<EmbeddingTable>* copy) const {
  FE_RETURN_IF_ERROR(MakeDramTable(copy));
  const std::lock_guard<std::mutex> lock(mutex());
  const GpuWork work(ctx);
  FE_RETURN_IF_ERROR(fused_embedding::CopyToDram(work.exec(), *table(), copy->get()));
  (*copy)->set_step(step());
  return Status();
}

// The new table is beside the old one until it is whole.
Status GpuTableResource::ReplaceBy(tensorflow::OpKernelContext* ctx,
                                   const EmbeddingTable& content) const {
  const std::lock_guard<std::mutex> lock(mutex());
  const GpuWork work(ctx);
  GpuTableConfig config = table()->config();
  config.layout = layout_;
  config.initializer = content.initializer();
  std::unique_ptr<GpuTable> restored;
  FE_RETURN_IF_ERROR(GpuTable::Create(work.exec(), config, &restored));
  int64_t num_lost = 0;
  const GpuTableResource* const table_of_rows = this;
  FE_RETURN_IF_ERROR(
      InTables({&table_of_rows, 1}, CopyFromDram(work.exec(), content, restored.get(), &num_lost)));
  if (num_lost > 0) {
    LOG(WARNING) << "EmbeddingVariable " << name() << ": " << num_lost
                 << " restored rows and counts have no room in storage_size, and were evicted";
  }
  int64_t num_old = 0, num_new = 0;
  FE_RETURN_IF_ERROR(CountRows(work.exec(), table(), &num_old));
  FE_RETURN_IF_ERROR(CountRows(work.exec(), restored.get(), &num_new));
  state_->num_given += num_new - num_old;  // `inserts` stays
  state_->table = std::move(restored);
  step() = content.step();
  return Status();
}

absl::Status GpuTables::LookUp(tensorflow::OpKernelContext* ctx, const char* name) {
  TF_RETURN_IF_ERROR(LookupTables(ctx, name, &resources_));
  std::vector<const GpuTableResource*> in_order;
  for (const auto& resource : resources_) in_order.push_back(resource.get());
  std::sort(in_order.begin(), in_order.end());
  if (std::adjacent_find(in_order.begin(), in_order.end()) != in_order.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must have each table once; pass all keys of a table together"));
  }
  for (const GpuTableResource* resource : in_order) locks_.emplace_back(resource->mutex());
  for (const auto& resource : resources_) tables_.push_back(resource->table());
  return absl::OkStatus();
}

std::vector<const GpuTableResource*> GpuTables::resources() const {
  std::vector<const GpuTableResource*> resources;
  for (const auto& resource : resources_) resources.push_back(resource.get());
  return resources;
}

Status CountLookup(const GpuExec& exec, Span<const GpuTableResource* const> tables,
                   Span<const int64_t> ends, Span<const int64_t> handles, bool insert,
                   const std::vector<int64_t>& num_evicted) {
  std::vector<unsigned long long*> counters;
  for (int64_t t = 0; t < tables.size; ++t) {
    const int64_t num_keys = ends[t] - (t == 0 ? 0 : ends[t - 1]);
    TableStatistics& statistics = tables[t]->counters();
    statistics.hits += num_keys;
    statistics.index_probes += num_keys;
    if (insert) statistics.evictions += num_evicted[static_cast<size_t>(t)];
    counters.push_back(tables[t]->missing_counter(insert));
  }
  return CountMissing(exec, ends, handles, AsSpan(std::as_const(counters)));
}

Status InTables(Span<const GpuTableResource* const> tables, const Status& status) {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  std::string names;
  for (int64_t t = 0; t < tables.size; ++t) {
    absl::StrAppend(&names, t == 0 ? "" : ", ", t, " ", tables[t]->name());
  }
  return MakeStatus(status.code(), status.message(),
                    "; the EmbeddingVariables with storage_type = ", "HBM here are: ", names,
                    "; max_bytes is what storage_size has for rows");
}

Status CheckNoneRefused(int64_t num_refused) {
  if (num_refused == 0) return Status();
  return ResourceExhausted("the tables refuse ", num_refused, " keys of this batch: a bucket of ",
                           kEntries,
                           " rows cannot hold more keys of one batch; raise storage_size, or use a "
                           "smaller batch");
}

}  // namespace fused_embedding
