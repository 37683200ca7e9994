// The embedding table as a TensorFlow resource, and what its ops share.

#ifndef FUSED_EMBEDDING_KERNELS_TABLE_RESOURCE_H_
#define FUSED_EMBEDDING_KERNELS_TABLE_RESOURCE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tf_ops/core/checkpoint/checkpoint.h"
#include "tf_ops/core/storage/table_folder.h"
#include "tf_ops/core/table/embedding_table.h"
#include "tf_ops/core/table/serving_lock.h"

namespace fused_embedding {

// Whether a table has the content that it is meant to have. A server that was restarted makes a
// table anew for whoever asks first: its rows are lost until they are restored.
class TableReadiness {
 public:
  explicit TableReadiness(bool is_initialized) : is_initialized_(is_initialized) {}

  // Whether it was initialized, or restored, since it was made. From then on it can be read.
  bool is_initialized() const { return is_initialized_; }
  void set_initialized() { is_initialized_ = true; }
  // Whether it is initialized, and no restore is replacing its rows.
  bool is_ready() const { return is_initialized_ && num_restores_ == 0; }

  // While its content is replaced. A restore that fails initializes nothing.
  class Restore {
   public:
    explicit Restore(TableReadiness* table) : table_(table) { ++table_->num_restores_; }
    ~Restore() { --table_->num_restores_; }
    Restore(const Restore&) = delete;
    Restore& operator=(const Restore&) = delete;
    void Succeed() { table_->set_initialized(); }

   private:
    TableReadiness* const table_;
  };

 private:
  std::atomic<bool> is_initialized_;
  std::atomic<int> num_restores_{0};
};

// A table as its ops see it, wherever its rows are.
class AnyTableResource : public tensorflow::ResourceBase {
 public:
  AnyTableResource(bool is_frozen, bool is_initialized, std::string description)
      : is_frozen_(is_frozen),
        readiness_(std::make_unique<TableReadiness>(is_initialized)),
        description_(std::move(description)) {}

  // Whether lookups insert nothing, whatever they were built for.
  bool is_frozen() const { return is_frozen_; }
  TableReadiness* readiness() const { return readiness_.get(); }
  // The attrs it was made with: another handle of its name must have the same.
  const std::string& description() const { return description_; }
  std::string DebugString() const override { return "EmbeddingVariable " + description_; }

 private:
  const bool is_frozen_;
  const std::unique_ptr<TableReadiness> readiness_;
  const std::string description_;
};

// A table in DRAM, and maybe on an SSD.
class TableResource : public AnyTableResource {
 public:
  // `folder`: that of its rows below DRAM; null: all are in DRAM.
  TableResource(std::unique_ptr<TableFolder> folder, std::unique_ptr<EmbeddingTable> table,
                bool is_frozen, bool is_initialized, std::string description)
      : AnyTableResource(is_frozen, is_initialized, std::move(description)),
        folder_(std::move(folder)),
        table_(std::move(table)) {}

  EmbeddingTable* table() const { return table_.get(); }
  // Of an export whose first table this is. Who waits or holds it keeps it.
  const std::shared_ptr<ServingLock>& serving_lock() const { return serving_lock_; }
  int64_t MemoryUsed() const override { return table_->Statistics().memory_bytes; }

  // --- What ops on tables anywhere use ---
  // Value type and dim; slots are not there.
  const RowLayout& layout() const { return table_->config().layout; }
  InitializerConfig initializer() const { return table_->initializer(); }
  Status ReadStatistics(tensorflow::OpKernelContext* /*ctx*/, TableStatistics* statistics) const {
    *statistics = table_->Statistics();
    return Status();
  }
  // body(const EmbeddingTable&) reads the content.
  template <typename Body>
  Status ReadContent(tensorflow::OpKernelContext* /*ctx*/, const Body& body) const {
    return body(*table_);
  }
  // body(EmbeddingTable*) replaces the whole content.
  template <typename Body>
  Status ReplaceContent(tensorflow::OpKernelContext* /*ctx*/, const Body& body) const {
    return body(table_.get());
  }

 private:
  const std::unique_ptr<TableFolder> folder_;  // given back when the table is gone
  const std::unique_ptr<EmbeddingTable> table_;
  const std::shared_ptr<ServingLock> serving_lock_ = std::make_shared<ServingLock>();
};

using TableResourcePtr = tensorflow::core::RefCountPtr<TableResource>;

// What an op requires of a table.
enum class TableState { kAny, kInitialized };

// A handle must be one resource.
absl::Status CheckTableHandle(const tensorflow::Tensor& input);
// NotFound, with what to do, for a table that was deleted; FailedPrecondition where it must be
// initialized and is not. `found`: what the lookup of its resource returned.
absl::Status CheckTableState(const std::string& name, const absl::Status& found,
                             TableState required, const AnyTableResource* resource);

// The table of a handle.
template <typename Resource>
absl::Status FindTable(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& input,
                       TableState required, tensorflow::core::RefCountPtr<Resource>* resource) {
  TF_RETURN_IF_ERROR(CheckTableHandle(input));
  const tensorflow::ResourceHandle& handle = input.flat<tensorflow::ResourceHandle>()(0);
  const absl::Status found = LookupResource(ctx, handle, resource);
  return CheckTableState(handle.name(), found, required, resource->get());
}

// Calls `then` once a lock is held, or with Cancelled where the step was cancelled before. No
// thread waits: it may be called by the thread that releases the lock.
void WaitForServingLock(tensorflow::OpKernelContext* ctx, std::shared_ptr<ServingLock> lock,
                        LockMode mode, std::function<void(absl::Status)> then);

// The tables of input list `name`, all initialized.
template <typename Resource>
absl::Status LookupTables(tensorflow::OpKernelContext* ctx, const char* name,
                          std::vector<tensorflow::core::RefCountPtr<Resource>>* resources) {
  tensorflow::OpInputList handles;
  TF_RETURN_IF_ERROR(ctx->input_list(name, &handles));
  for (const tensorflow::Tensor& handle : handles) {
    resources->emplace_back();
    TF_RETURN_IF_ERROR(FindTable(ctx, handle, TableState::kInitialized, &resources->back()));
  }
  return absl::OkStatus();
}

// An op on the table of input 0, which is looked up before `ComputeOn`.
template <typename Resource>
class OpOnTable : public tensorflow::OpKernel {
 public:
  explicit OpOnTable(tensorflow::OpKernelConstruction* ctx, TableState required = TableState::kAny)
      : OpKernel(ctx), required_(required) {}
  void Compute(tensorflow::OpKernelContext* ctx) final {
    tensorflow::core::RefCountPtr<Resource> resource;
    OP_REQUIRES_OK(ctx, FindTable(ctx, ctx->input(0), required_, &resource));
    ComputeOn(ctx, *resource);
  }

 private:
  virtual void ComputeOn(tensorflow::OpKernelContext* ctx, const Resource& resource) = 0;

  const TableState required_;
};

// An op that reads rows: none of a table that is not initialized.
template <typename Resource>
class OpThatReadsTable : public OpOnTable<Resource> {
 public:
  explicit OpThatReadsTable(tensorflow::OpKernelConstruction* ctx)
      : OpOnTable<Resource>(ctx, TableState::kInitialized) {}
};

using TableOp = OpOnTable<TableResource>;
using ReadingTableOp = OpThatReadsTable<TableResource>;

// Logs that a lookup by op `name` found the table full, where its check mode says so.
void WarnOfRefused(const std::string& name, const EmbeddingTable& table, int64_t num_refused);

// An op's dtype must be that of the table.
Status CheckValueType(const char* name, tensorflow::DataType dtype, ValueType value_type);

// Attrs partition_index, num_partitions and partition_strategy.
Status ReadPartition(tensorflow::OpKernelConstruction* ctx, PartitionFilter* partition);

// Attrs insert and are_inserted: whether a lookup inserts keys into each of its num_tables tables.
Status ReadInserts(tensorflow::OpKernelConstruction* ctx, std::vector<bool>* inserts);

// `counts` of a lookup: none, or one for each of `n` keys.
Status CheckCounts(const tensorflow::Tensor& counts, int64_t n);

// `tensor` must hold values of the table: its dtype, and `[n, dim]` for `n` keys.
Status CheckValues(const char* name, const tensorflow::Tensor& tensor, int64_t n,
                   const RowLayout& layout);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_TABLE_RESOURCE_H_
