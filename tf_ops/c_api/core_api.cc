#include "tf_ops/c_api/core_api.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "tf_ops/c_api/machine.h"
#include "tf_ops/c_api/plans.h"

namespace fused_embedding {
namespace {

// What a C function returns.
const char* Report(const Status& status) {
  thread_local std::string message;
  if (status.ok()) return nullptr;
  message = status.message();
  return message.c_str();
}

Status CheckedRun(const FePlanned& planned, const FeArray* outputs, int64_t num_outputs) {
  const int64_t num_wanted = static_cast<int64_t>(planned.sizes.size());
  if (num_outputs != num_wanted) {
    return InvalidArgument("the lookup has ", num_wanted, " outputs, got ", num_outputs);
  }
  for (int64_t i = 0; i < num_outputs; ++i) {
    const int64_t size = planned.sizes[static_cast<size_t>(i)];
    if (outputs[i].size >= size && (outputs[i].data != nullptr || size == 0)) continue;
    return InvalidArgument("output ", i, " has ", size, " elements, got memory for ",
                           outputs[i].data ? outputs[i].size : 0);
  }
  return planned.run(outputs);
}

Status TimeRuns(FeMachine* machine, const FeBatches& batches, FeArray plug, int64_t num_samples,
                double* stream_us) {
  // A series stays shorter than the queue of a stream, and the plug outlasts its launches.
  constexpr int64_t kRunsOfSeries = 16;
  constexpr int kNumPlugs = 8;
  std::vector<FePlanned> planned(static_cast<size_t>(batches.num_batches));
  for (int64_t b = 0; b < batches.num_batches; ++b) {
    FE_RETURN_IF_ERROR(
        PlanByName(*machine, batches.lookup, batches.inputs[b], &planned[static_cast<size_t>(b)]));
  }
  for (int64_t first = 0; first < num_samples; first += kRunsOfSeries) {
    const int64_t last = std::min(num_samples, first + kRunsOfSeries);
    for (int i = 0; plug.data != nullptr && i < kNumPlugs; ++i) {
      FE_RETURN_IF_ERROR(machine->Clear(plug.data, plug.size));
    }
    for (int64_t i = first; i < last; ++i) {
      const int64_t batch = i % batches.num_batches;
      FE_RETURN_IF_ERROR(machine->Mark(static_cast<size_t>(2 * (i - first))));
      FE_RETURN_IF_ERROR(CheckedRun(planned[static_cast<size_t>(batch)],
                                    batches.outputs + batch * batches.num_outputs,
                                    batches.num_outputs));
      FE_RETURN_IF_ERROR(machine->Mark(static_cast<size_t>(2 * (i - first) + 1)));
    }
    FE_RETURN_IF_ERROR(machine->Wait());
    for (int64_t i = first; i < last; ++i) {
      const size_t mark = static_cast<size_t>(2 * (i - first));
      FE_RETURN_IF_ERROR(machine->MicrosBetween(mark, mark + 1, stream_us + i));
    }
  }
  return Status();
}

Status TimeStep(FeMachine* machine, const FeBatches& batches, int64_t batch, double* stream_us) {
  FePlanned planned;
  FE_RETURN_IF_ERROR(machine->Mark(0));
  FE_RETURN_IF_ERROR(PlanByName(*machine, batches.lookup, batches.inputs[batch], &planned));
  FE_RETURN_IF_ERROR(
      CheckedRun(planned, batches.outputs + batch * batches.num_outputs, batches.num_outputs));
  FE_RETURN_IF_ERROR(machine->Mark(1));
  FE_RETURN_IF_ERROR(machine->Wait());
  return machine->MicrosBetween(0, 1, stream_us);
}

}  // namespace
}  // namespace fused_embedding

using fused_embedding::InvalidArgument;
using fused_embedding::Report;
using fused_embedding::Status;

const char* FeOpenGpu(FeMachine** machine) {
  std::unique_ptr<FeMachine> opened;
  const Status status = fused_embedding::OpenGpu(&opened);
  *machine = opened.release();
  return Report(status);
}

const char* FeOpenCpu(int32_t num_threads, FeMachine** machine) {
  constexpr int32_t kMaxThreads = 1024;
  *machine = nullptr;
  if (num_threads < 1 || num_threads > kMaxThreads) {
    return Report(InvalidArgument("num_threads must be 1 to ", kMaxThreads, ", got ", num_threads));
  }
  std::unique_ptr<FeMachine> opened;
  const Status status = fused_embedding::OpenCpu(num_threads, &opened);
  *machine = opened.release();
  return Report(status);
}

void FeClose(FeMachine* machine) { std::unique_ptr<FeMachine>{machine}.reset(); }

void FeCount(const FeMachine* machine, FeCounters* counters) { *counters = machine->counters(); }

const char* FeAllocate(FeMachine* machine, int64_t bytes, void** memory) {
  *memory = nullptr;
  if (bytes < 0) return Report(InvalidArgument("bytes must not be negative, got ", bytes));
  return Report(machine->Allocate(bytes, memory));
}

const char* FeFree(FeMachine* machine, void* memory) { return Report(machine->Free(memory)); }

const char* FeOpenGpuTable(FeMachine* machine, const FeGpuTableConfig* config, FeGpuTable** table) {
  *table = nullptr;
  return Report(fused_embedding::c_api::OpenGpuTable(*machine, *config, table));
}

void FeCloseGpuTable(FeGpuTable* table) { fused_embedding::c_api::CloseGpuTable(table); }

void FeMeasureGpuTable(const FeGpuTable* table, FeGpuTableSizes* sizes) {
  *sizes = fused_embedding::c_api::SizesOf(*table);
}

const char* FeCopy(FeMachine* machine, void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return nullptr;
  const Status status = machine->Copy(to, from, bytes);
  return Report(status.ok() ? machine->Wait() : status);
}

const char* FePlan(FeMachine* machine, const char* lookup, const void* in, FePlanned** planned) {
  auto made = std::make_unique<FePlanned>();
  const Status status = fused_embedding::PlanByName(*machine, lookup, in, made.get());
  *planned = status.ok() ? made.release() : nullptr;
  return Report(status);
}

void FeDrop(FePlanned* planned) { std::unique_ptr<FePlanned>{planned}.reset(); }

int64_t FeOutputSizes(const FePlanned* planned, int64_t* sizes, int64_t num_sizes) {
  const int64_t num_outputs = static_cast<int64_t>(planned->sizes.size());
  std::copy_n(planned->sizes.begin(), std::min(num_outputs, num_sizes), sizes);
  return num_outputs;
}

const char* FeRun(const FePlanned* planned, const FeArray* outputs, int64_t num_outputs) {
  return Report(fused_embedding::CheckedRun(*planned, outputs, num_outputs));
}

const char* FeWait(FeMachine* machine) { return Report(machine->Wait()); }

const char* FeTimeRuns(FeMachine* machine, const FeBatches* batches, FeArray plug,
                       int64_t num_samples, double* stream_us) {
  return Report(fused_embedding::TimeRuns(machine, *batches, plug, num_samples, stream_us));
}

const char* FeTimeSteps(FeMachine* machine, const FeBatches* batches, int64_t num_samples,
                        double* stream_us, double* host_us) {
  using Clock = std::chrono::steady_clock;
  for (int64_t i = 0; i < num_samples; ++i) {
    const Clock::time_point start = Clock::now();
    const Status status =
        fused_embedding::TimeStep(machine, *batches, i % batches->num_batches, stream_us + i);
    if (!status.ok()) return Report(status);
    host_us[i] = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }
  return nullptr;
}
