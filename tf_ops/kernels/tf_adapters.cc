#include "tf_ops/kernels/tf_adapters.h"

#include "tensorflow/core/platform/threadpool.h"
#include "tf_ops/core/base/huge_pages.h"

namespace fused_embedding {

absl::Status AllocateOutput(tensorflow::OpKernelContext* ctx, int index,
                            std::initializer_list<int64_t> dims, tensorflow::Tensor** output) {
  tensorflow::TensorShape shape;
  const absl::Status status =
      tensorflow::TensorShape::BuildTensorShape({dims.begin(), dims.size()}, &shape);
  if (!status.ok()) return status;
  return ctx->allocate_output(index, shape, output);
}

ValueType ToValueType(tensorflow::DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_DOUBLE:
      return ValueType::kDouble;
    case tensorflow::DT_HALF:
      return ValueType::kHalf;
    case tensorflow::DT_BFLOAT16:
      return ValueType::kBFloat16;
    default:
      return ValueType::kFloat;
  }
}

void UseHugePages(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& values) {
  const bool is_on_cpu = ctx->op_device_context() == nullptr;
  if (!is_on_cpu) return;
  HugePages::Global().Use(values.data(), static_cast<int64_t>(values.TotalBytes()));
}

TfExec::TfExec(tensorflow::OpKernelContext* ctx)
    : workers_(ctx->device()->tensorflow_cpu_worker_threads()->workers) {}

int TfExec::num_threads() const { return workers_->NumThreads(); }

void TfExec::ParallelFor(int64_t total, int64_t unit_ns, const Body& body) const {
  if (total <= 0) return;
  // Deprecated in newer TensorFlow, but what replaces it is not in 2.15. The pool counts cycles;
  // a nanosecond is two to four of them.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  workers_->ParallelFor(total, 3 * unit_ns, body);
#pragma GCC diagnostic pop
}

}  // namespace fused_embedding
