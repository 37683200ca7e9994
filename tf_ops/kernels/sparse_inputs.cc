#include "tf_ops/kernels/sparse_inputs.h"

#include <limits>
#include <string>

namespace fused_embedding {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::Tensor;

Status ToStatus(const absl::Status& status) {
  if (status.ok()) return Status();
  return MakeStatus(StatusCode::kInternal, std::string(status.message()));
}

Status InputList(tensorflow::OpKernelContext* ctx, const char* name, OpInputList* list) {
  return ToStatus(ctx->input_list(name, list));
}

Status ReadNumRows(const Tensor& dense_shape, int64_t* num_rows) {
  if (dense_shape.dims() != 1 || dense_shape.NumElements() < 2) {
    return InvalidArgument(
        "sp_dense_shape must be a vector of at least two elements, the number of rows and a width, "
        "got shape ",
        dense_shape.shape().DebugString());
  }
  const auto sizes = dense_shape.flat<int64_t>();
  *num_rows = 1;
  for (int64_t i = 0; i + 1 < dense_shape.NumElements(); ++i) {
    if (sizes(i) < 0 ||
        (sizes(i) > 0 && *num_rows > std::numeric_limits<int64_t>::max() / sizes(i))) {
      return InvalidArgument("sp_dense_shape[", i, "] = ", sizes(i),
                             " must not be negative, and the product must fit int64");
    }
    *num_rows *= sizes(i);
  }
  return Status();
}

Status CheckIdsAndIndices(const Tensor& values, const Tensor& indices) {
  if (values.dims() == 1 && indices.dims() == 2 && indices.dim_size(1) == 2 &&
      indices.dim_size(0) == values.NumElements()) {
    return Status();
  }
  return InvalidArgument(
      "sp_values must be a vector [nnz] and sp_indices a matrix [nnz, 2], got shapes ",
      values.shape().DebugString(), " and ", indices.shape().DebugString());
}

Status CheckVector(const char* name, const Tensor& tensor) {
  if (tensor.dims() == 1) return Status();
  return InvalidArgument(name, " must be a vector, got shape ", tensor.shape().DebugString());
}

Status ReadShardRows(const OpInputList& partition_shapes, std::vector<int64_t>* rows) {
  for (const Tensor& shape : partition_shapes) {
    if (shape.dims() != 1 || shape.NumElements() < 1) {
      return InvalidArgument("partition_shapes[", rows->size(),
                             "] must be the shape [rows, dim] of a shard, got a tensor of shape ",
                             shape.shape().DebugString());
    }
    rows->push_back(shape.flat<int64_t>()(0));
  }
  return Status();
}

Status ReadPartitionAxis(OpKernelConstruction* ctx) {
  const auto axis = GetAttr<int64_t>(ctx, "partition_axis");
  if (axis == 0) return Status();
  return MakeStatus(StatusCode::kUnimplemented,
                    "partition_axis must be 0, the axis of the rows, got ", axis);
}

Status ReadPartitionStrategy(OpKernelConstruction* ctx, PartitionStrategy* strategy) {
  return ParsePartitionStrategy(GetAttr<std::string>(ctx, "partition_strategy"), strategy);
}

}  // namespace fused_embedding
