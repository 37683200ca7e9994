#include <utility>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/remote/packed_rows.h"
#include "tf_ops/kernels/remote_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename T>
class UnpackRowsOp final : public tensorflow::OpKernel {
 public:
  explicit UnpackRowsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadPackedLayout(ctx, &layout_));
  }

  void Compute(OpKernelContext* ctx) override {
    PackedInput<T> packed;
    FE_REQUIRES_OK(ctx, ReadPackedRows<T>(ctx, layout_, &packed));
    for (int t = 0; t < static_cast<int>(layout_.num_tables()); ++t) {
      const PackedPlaces::Table& table = packed.places.tables[static_cast<size_t>(t)];
      const int64_t dim = layout_.dims[static_cast<size_t>(t)];
      if (table.is_whole && SharesRows(ctx, packed.places, table, t)) continue;
      Tensor* rows = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, t, {table.num_rows, dim}, &rows));
      UnpackTable<CoreType<T>>(packed.places, t, AsSpan(std::as_const(packed.servers)),
                               OutputSpan<T>(rows).data);
    }
  }

 private:
  // Outputs the rows of a whole table without a copy, as TensorFlow's Split does, if other ops can
  // read them where they are: they must be aligned.
  bool SharesRows(OpKernelContext* ctx, const PackedPlaces& places,
                  const PackedPlaces::Table& table, int t) const {
    const PackedPlaces::Part& first = places.parts[static_cast<size_t>(table.first_part)];
    const Tensor& server = ctx->input(static_cast<int>(first.server));
    const Tensor values = server.Slice(first.offset, first.offset + table.num_values);
    Tensor rows;
    if (table.num_values == 0 || !values.IsAligned() ||
        !rows.CopyFrom(values, {table.num_rows, layout_.dims[static_cast<size_t>(t)]})) {
      return false;
    }
    ctx->set_output(t, rows);
    return true;
  }

  PackedLayout layout_;
};

#define FE_REGISTER(T)                                                                            \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("FusedEmbeddingUnpackRows").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("dtype"), \
      UnpackRowsOp<T>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
