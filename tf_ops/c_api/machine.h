// What runs lookups behind the C functions: a GPU with a stream, or threads of the CPU.

#ifndef FUSED_EMBEDDING_C_API_MACHINE_H_
#define FUSED_EMBEDDING_C_API_MACHINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/c_api/core_api.h"
#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/base/status.h"

struct FeMachine {
  using Status = fused_embedding::Status;

  virtual ~FeMachine() = default;
  // One of these is null.
  virtual const fused_embedding::CpuExec* cpu() const { return nullptr; }
  virtual const fused_embedding::GpuExec* gpu() const { return nullptr; }
  virtual FeCounters counters() const { return {}; }

  virtual Status Allocate(int64_t bytes, void** memory) = 0;
  virtual Status Free(void* memory) = 0;
  // Enqueued, as runs are.
  virtual Status Copy(void* to, const void* from, int64_t bytes) const = 0;
  virtual Status Clear(void* memory, int64_t bytes) = 0;
  virtual Status Wait() = 0;
  // Marks a time in the order of the stream; any number of marks is kept.
  virtual Status Mark(size_t number) = 0;
  // Both must have been reached.
  virtual Status MicrosBetween(size_t first, size_t last, double* micros) = 0;
};

struct FePlanned {
  std::vector<int64_t> sizes;  // of the outputs
  // Gets outputs of at least these sizes.
  std::function<fused_embedding::Status(const FeArray* outputs)> run;
};

namespace fused_embedding {

Status OpenGpu(std::unique_ptr<FeMachine>* machine);
Status OpenCpu(int num_threads, std::unique_ptr<FeMachine>* machine);

// Plans the lookup of this name.
Status PlanByName(const FeMachine& machine, const std::string& lookup, const void* in,
                  FePlanned* planned);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_C_API_MACHINE_H_
