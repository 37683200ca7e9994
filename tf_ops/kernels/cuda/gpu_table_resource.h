// A table in a GPU's memory as a TensorFlow resource, and what its ops share.

#ifndef FUSED_EMBEDDING_KERNELS_CUDA_GPU_TABLE_RESOURCE_H_
#define FUSED_EMBEDDING_KERNELS_CUDA_GPU_TABLE_RESOURCE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/optimizer/rule_info.h"
#include "tf_ops/core/table/gpu/gpu_table.h"
#include "tf_ops/core/table/table_statistics.h"
#include "tf_ops/kernels/cuda/tf_gpu_exec.h"
#include "tf_ops/kernels/table_resource.h"

namespace fused_embedding {

// Where TensorFlow finds the kernels. Those of the emulation are for CPUs, where kernels for tables
// in DRAM have the same ops, so that they also have a label.
#ifdef FE_EMULATED_GPU
const char* const kGpuTableDevice = tensorflow::DEVICE_CPU;
const char* const kGpuTableLabel = "emulated";
#else
const char* const kGpuTableDevice = tensorflow::DEVICE_GPU;
const char* const kGpuTableLabel = "";
#endif
#define FE_ON_GPU(name) Name(name).Device(kGpuTableDevice).Label(kGpuTableLabel)

class GpuTableResource : public AnyTableResource {
 public:
  // `num_missing`: two zeros.
  GpuTableResource(std::string name, std::unique_ptr<GpuTable> table,
                   DeviceBuffer<unsigned long long> num_missing, bool is_initialized,
                   std::string description);

  const std::string& name() const { return name_; }

  // The mutex guards the table and the counters: an op holds it while it works on the table.
  std::mutex& mutex() const { return state_->mutex; }
  GpuTable* table() const { return state_->table.get(); }
  TableStatistics& counters() const { return state_->counters; }
  // Where the keys without a row of a lookup are counted, in device memory.
  unsigned long long* missing_counter(bool insert) const {
    return state_->num_missing.data() + (insert ? 0 : 1);
  }
  // The table's own step counter, for calls that pass no global step.
  int64_t& step() const { return state_->step; }
  int64_t StepOr(int64_t step) const { return step < 0 ? state_->step : step; }
  // Rows that were upserted, not inserted by a lookup. Waits, for their number before and after.
  Status UpsertValues(const GpuExec& exec, const GpuTableKeys& in, const char* values) const;

  // --- What ops on tables anywhere use ---
  const RowLayout& layout() const { return layout_; }
  InitializerConfig initializer() const;
  Status ReadStatistics(tensorflow::OpKernelContext* ctx, TableStatistics* statistics) const;
  template <typename Body>
  Status ReadContent(tensorflow::OpKernelContext* ctx, const Body& body) const {
    std::unique_ptr<EmbeddingTable> copy;
    FE_RETURN_IF_ERROR(CopyToDram(ctx, &copy));
    return body(*copy);
  }
  template <typename Body>
  Status ReplaceContent(tensorflow::OpKernelContext* ctx, const Body& body) const {
    std::unique_ptr<EmbeddingTable> content;
    FE_RETURN_IF_ERROR(MakeDramTable(&content));
    FE_RETURN_IF_ERROR(body(content.get()));
    return ReplaceBy(ctx, *content);
  }

 private:
  struct State {
    std::mutex mutex;
    std::unique_ptr<GpuTable> table;
    TableStatistics counters;                      // `hits` are all keys of lookups, found or not
    DeviceBuffer<unsigned long long> num_missing;  // in training, and in evaluation
    int64_t num_given = 0;  // rows that no lookup inserted: upserted or restored
    int64_t step = 0;
  };

  // A table in DRAM for the same content, which is empty.
  Status MakeDramTable(std::unique_ptr<EmbeddingTable>* table) const;
  Status CopyToDram(tensorflow::OpKernelContext* ctx, std::unique_ptr<EmbeddingTable>* copy) const;
  Status ReplaceBy(tensorflow::OpKernelContext* ctx, const EmbeddingTable& content) const;

  const std::string name_;
  const std::unique_ptr<State> state_;
  const RowLayout layout_;  // without slots
};

// The tables of an op, which holds their mutexes.
class GpuTables {
 public:
  // Input list `name`. InvalidArgument for a table that occurs twice.
  absl::Status LookUp(tensorflow::OpKernelContext* ctx, const char* name);

  size_t size() const { return tables_.size(); }
  Span<GpuTable* const> tables() const { return AsSpan(tables_); }
  const GpuTableResource& operator[](size_t t) const { return *resources_[t]; }
  std::vector<const GpuTableResource*> resources() const;

 private:
  std::vector<tensorflow::core::RefCountPtr<GpuTableResource>> resources_;
  std::vector<std::unique_lock<std::mutex>> locks_;  // released first
  std::vector<GpuTable*> tables_;
};

// An op on the table of input 0, whose mutex it holds, on its device.
class GpuTableOp : public OpOnTable<GpuTableResource> {
 public:
  using OpOnTable<GpuTableResource>::OpOnTable;

 private:
  void ComputeOn(tensorflow::OpKernelContext* ctx, const GpuTableResource& resource) final {
    const std::lock_guard<std::mutex> lock(resource.mutex());
    const GpuWork work(ctx);
    ComputeOnGpu(ctx, work.exec(), resource);
  }

  virtual void ComputeOnGpu(tensorflow::OpKernelContext* ctx, const GpuExec& exec,
                            const GpuTableResource& resource) = 0;
};

// Counts a lookup of some tables in their statistics: `handles` of the keys of one after the other,
// and how many rows of each were evicted; none in evaluation. Does not wait.
Status CountLookup(const GpuExec& exec, Span<const GpuTableResource* const> tables,
                   Span<const int64_t> ends, Span<const int64_t> handles, bool insert,
                   const std::vector<int64_t>& num_evicted);

// The error of tables that have no room, in the user's names.
Status InTables(Span<const GpuTableResource* const> tables, const Status& status);

// ResourceExhausted for a batch of which a bucket cannot take all rows.
Status CheckNoneRefused(int64_t num_refused);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_CUDA_GPU_TABLE_RESOURCE_H_
