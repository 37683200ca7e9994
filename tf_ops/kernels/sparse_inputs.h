// Reading and checking the inputs that several OpKernels share.

#ifndef FUSED_EMBEDDING_KERNELS_SPARSE_INPUTS_H_
#define FUSED_EMBEDDING_KERNELS_SPARSE_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/lookup/group/group_column.h"
#include "tf_ops/core/lookup/rows/shard_map.h"

namespace fused_embedding {

// For functions of TensorFlow that fail only by an error of ours.
Status ToStatus(const absl::Status& status);

// An input list that the op's registration guarantees to exist.
Status InputList(tensorflow::OpKernelContext* ctx, const char* name, tensorflow::OpInputList* list);

// sp_dense_shape [k], k >= 2, without its last element, multiplied.
Status ReadNumRows(const tensorflow::Tensor& dense_shape, int64_t* num_rows);

// sp_values must be a vector [nnz], sp_indices a matrix [nnz, 2].
Status CheckIdsAndIndices(const tensorflow::Tensor& values, const tensorflow::Tensor& indices);

Status CheckVector(const char* name, const tensorflow::Tensor& tensor);

// Input `index`, which must be a scalar. T is int64_t, double or tensorflow::tstring.
template <typename T>
Status ReadScalar(tensorflow::OpKernelContext* ctx, int index, const char* name, T* value) {
  const tensorflow::Tensor& tensor = ctx->input(index);
  if (tensor.dims() != 0) {
    return InvalidArgument(name, " must be a scalar, got shape ", tensor.shape().DebugString());
  }
  *value = tensor.scalar<T>()();
  return Status();
}

// The number of rows of each shard, from partition_shapes: P vectors [rows, dim].
Status ReadShardRows(const tensorflow::OpInputList& partition_shapes, std::vector<int64_t>* rows);

// Attrs of the ops that partition: partition_axis, which must be 0, and partition_strategy.
Status ReadPartitionAxis(tensorflow::OpKernelConstruction* ctx);
Status ReadPartitionStrategy(tensorflow::OpKernelConstruction* ctx, PartitionStrategy* strategy);

// Reads an attr that the op's registration guarantees to exist.
template <typename T>
T GetAttr(tensorflow::OpKernelConstruction* ctx, const char* name) {
  T value{};
  const absl::Status status = ctx->GetAttr(name, &value);
  if (!status.ok()) ctx->SetStatus(status);
  return value;
}

// Attr column_name: what errors of a lookup start with; empty: nothing.
class ColumnName {
 public:
  explicit ColumnName(tensorflow::OpKernelConstruction* ctx)
      : name_(GetAttr<std::string>(ctx, "column_name")) {}
  Status Of(const Status& status) const {
    return name_.empty() ? status : InColumn(0, status, name_.c_str());
  }

 private:
  const std::string name_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_KERNELS_SPARSE_INPUTS_H_
