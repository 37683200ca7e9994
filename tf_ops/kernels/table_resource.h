// The embedding table as a TensorFlow resource.

#ifndef FUSED_EMBEDDING_KERNELS_TABLE_RESOURCE_H_
#define FUSED_EMBEDDING_KERNELS_TABLE_RESOURCE_H_

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

class TableResource : public tensorflow::ResourceBase {
 public:
  // `folder`: that of its rows below DRAM; null: all are in DRAM.
  TableResource(std::unique_ptr<TableFolder> folder, std::unique_ptr<EmbeddingTable> table,
                bool is_frozen, std::string description)
      : folder_(std::move(folder)),
        table_(std::move(table)),
        is_frozen_(is_frozen),
        description_(std::move(description)) {}

  EmbeddingTable* table() const { return table_.get(); }
  // Whether lookups insert nothing, whatever they were built for.
  bool is_frozen() const { return is_frozen_; }
  // The attrs it was made with: another handle of its name must have the same.
  const std::string& description() const { return description_; }
  // Of an export whose first table this is. Who waits or holds it keeps it.
  const std::shared_ptr<ServingLock>& serving_lock() const { return serving_lock_; }

  std::string DebugString() const override { return "EmbeddingVariable " + description_; }
  int64_t MemoryUsed() const override { return table_->Statistics().memory_bytes; }

 private:
  const std::unique_ptr<TableFolder> folder_;  // given back when the table is gone
  const std::unique_ptr<EmbeddingTable> table_;
  const bool is_frozen_;
  const std::string description_;
  const std::shared_ptr<ServingLock> serving_lock_ = std::make_shared<ServingLock>();
};

using TableResourcePtr = tensorflow::core::RefCountPtr<TableResource>;

// The table of input 0. NotFound, with what to do, where it was deleted.
absl::Status LookupTable(tensorflow::OpKernelContext* ctx, TableResourcePtr* resource);

// Calls `then` once a lock is held, or with Cancelled where the step was cancelled before. No
// thread waits: it may be called by the thread that releases the lock.
void WaitForServingLock(tensorflow::OpKernelContext* ctx, std::shared_ptr<ServingLock> lock,
                        LockMode mode, std::function<void(absl::Status)> then);

// The tables of input list `name`.
absl::Status LookupTables(tensorflow::OpKernelContext* ctx, const char* name,
                          std::vector<TableResourcePtr>* resources);

// An op on the table of input 0, which is looked up before `ComputeOn`.
class TableOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* ctx) final {
    TableResourcePtr resource;
    OP_REQUIRES_OK(ctx, LookupTable(ctx, &resource));
    ComputeOn(ctx, *resource);
  }

 private:
  virtual void ComputeOn(tensorflow::OpKernelContext* ctx, const TableResource& resource) = 0;
};

// Logs that a lookup by op `name` found the table full, where its check mode says so.
void WarnOfRefused(const std::string& name, const EmbeddingTable& table, int64_t num_refused);

// An op's dtype must be that of the table.
Status CheckValueType(const char* name, tensorflow::DataType dtype, ValueType value_type);

// Attrs partition_index, num_partitions and partition_strategy.
Status ReadPartition(tensorflow::OpKernelConstruction* ctx, PartitionFilter* partition);

// `tensor` must hold values of the table: its dtype, and `[n, dim]` for `n` keys.
Status CheckValues(const char* name, const tensorflow::Tensor& tensor, int64_t n,
                   const EmbeddingTable& table);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_TABLE_RESOURCE_H_
