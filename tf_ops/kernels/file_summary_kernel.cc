#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/checkpoint/file_summary.h"
#include "tf_ops/core/checkpoint/table_file.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::tstring;

template <typename T>
absl::Status WriteScalar(OpKernelContext* ctx, int index, const T& value) {
  Tensor* output;
  TF_RETURN_IF_ERROR(ctx->allocate_output(index, {}, &output));
  output->scalar<T>()() = value;
  return absl::OkStatus();
}

absl::Status WriteVector(OpKernelContext* ctx, int index, const std::vector<uint32_t>& values) {
  Tensor* output;
  TF_RETURN_IF_ERROR(AllocateOutput(ctx, index, {static_cast<int64_t>(values.size())}, &output));
  std::copy(values.begin(), values.end(), output->flat<uint32_t>().data());
  return absl::OkStatus();
}

class FileSummaryOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    tstring path;
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, 0, "path", &path));
    FileSummary summary;
    FE_REQUIRES_OK(ctx, SummarizeTableFile(path, &summary));
    OP_REQUIRES_OK(ctx, WriteHeader(ctx, summary));
    OP_REQUIRES_OK(ctx, WriteSlots(ctx, summary.slots));
    OP_REQUIRES_OK(ctx, WriteVector(ctx, 8, summary.rows.frequencies));
    OP_REQUIRES_OK(ctx, WriteVector(ctx, 9, summary.rows.versions));
    OP_REQUIRES_OK(ctx, WriteVector(ctx, 10, summary.filtered.frequencies));
    OP_REQUIRES_OK(ctx, WriteVector(ctx, 11, summary.filtered.versions));
  }

 private:
  static absl::Status WriteHeader(OpKernelContext* ctx, const FileSummary& summary) {
    const TableHeader& header = summary.header;
    TF_RETURN_IF_ERROR(WriteScalar<tstring>(ctx, 0, ValueTypeName(header.value_type)));
    TF_RETURN_IF_ERROR(WriteScalar<int64_t>(ctx, 1, header.dim));
    TF_RETURN_IF_ERROR(WriteScalar<int64_t>(ctx, 2, header.step));
    TF_RETURN_IF_ERROR(WriteScalar<tstring>(ctx, 3, AdmissionKindName(header.admission.kind)));
    TF_RETURN_IF_ERROR(WriteScalar<int64_t>(ctx, 4, header.admission.min_frequency));
    return WriteScalar<int64_t>(ctx, 5, summary.bloom_bytes);
  }

  static absl::Status WriteSlots(OpKernelContext* ctx, const std::vector<Slot>& slots) {
    Tensor *names, *widths;
    const auto k = static_cast<int64_t>(slots.size());
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 6, {k}, &names));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 7, {k}, &widths));
    for (int64_t i = 0; i < k; ++i) {
      names->flat<tstring>()(i) = slots[static_cast<size_t>(i)].name;
      widths->flat<int64_t>()(i) = slots[static_cast<size_t>(i)].width;
    }
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("EmbeddingVariableFileSummary").Device(tensorflow::DEVICE_CPU),
                        FileSummaryOp);

}  // namespace
}  // namespace fused_embedding
