#include "tf_ops/core/table/gpu/host_rows.cu.h"

#include "tf_ops/core/base/cuda/launch.cu.h"

namespace fused_embedding {

Status ExportToHost(const GpuExec& exec, const GpuTable& table, int64_t begin, int64_t end,
                    HostRows* rows) {
  GpuExportPlan plan;
  FE_RETURN_IF_ERROR(PlanGpuExport(exec, table, begin, end, &plan));
  const size_t num_rows = static_cast<size_t>(plan.num_rows);
  *rows = {std::vector<int64_t>(num_rows), std::vector<uint32_t>(num_rows),
           std::vector<uint32_t>(num_rows),
           std::vector<char>(num_rows * static_cast<size_t>(table.row_bytes()))};
  DeviceBuffer<int64_t> keys;
  DeviceBuffer<uint32_t> frequencies, versions;
  DeviceBuffer<char> bytes;
  FE_RETURN_IF_ERROR(keys.Allocate(exec, plan.num_rows));
  FE_RETURN_IF_ERROR(frequencies.Allocate(exec, plan.num_rows));
  FE_RETURN_IF_ERROR(versions.Allocate(exec, plan.num_rows));
  FE_RETURN_IF_ERROR(bytes.Allocate(exec, plan.num_rows * table.row_bytes()));
  FE_RETURN_IF_ERROR(
      RunGpuExport(exec, table, plan,
                   {keys.data(), frequencies.data(), versions.data(), nullptr, bytes.data()}));
  Readback readback;
  readback.Add<int64_t>(keys.data(), AsSpan(rows->keys));
  readback.Add<uint32_t>(frequencies.data(), AsSpan(rows->frequencies));
  readback.Add<uint32_t>(versions.data(), AsSpan(rows->versions));
  readback.Add<char>(bytes.data(), AsSpan(rows->rows));
  return readback.Wait(exec);
}

Status UpsertFromHost(const GpuExec& exec, const HostRows& rows, GpuTable* table,
                      int64_t* num_lost) {
  DeviceBuffer<int64_t> keys;
  DeviceBuffer<uint32_t> frequencies, versions;
  DeviceBuffer<char> bytes;
  FE_RETURN_IF_ERROR(Upload<int64_t>(exec, AsSpan(rows.keys), &keys));
  FE_RETURN_IF_ERROR(Upload<uint32_t>(exec, AsSpan(rows.frequencies), &frequencies));
  FE_RETURN_IF_ERROR(Upload<uint32_t>(exec, AsSpan(rows.versions), &versions));
  FE_RETURN_IF_ERROR(Upload<char>(exec, AsSpan(rows.rows), &bytes));
  GpuTable* const tables[] = {table};
  const int64_t end = rows.size();
  const char* const pointer = bytes.data();
  const GpuTableKeys in = {{tables, 1}, {&end, 1}, keys.span()};
  GpuInsertPlan plan;
  FE_RETURN_IF_ERROR(PlanGpuUpsert(exec, in, &plan));
  *num_lost += plan.num_evicted[0] + plan.num_refused;
  return RunGpuUpsert(exec, in, {frequencies.span(), versions.span(), {}, {&pointer, 1}}, plan, {});
}

}  // namespace fused_embedding
