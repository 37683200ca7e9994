#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/lookup/remote/remote_keys.h"
#include "tf_ops/kernels/group_input.h"
#include "tf_ops/kernels/remote_input.h"
#include "tf_ops/kernels/sparse_inputs.h"
#include "tf_ops/kernels/tf_adapters.h"

namespace fused_embedding {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Outputs a message for each server, part_sizes, positions of each column and default_positions.
template <typename T>
class RemoteKeysOp final : public tensorflow::OpKernel {
 public:
  using V = CoreType<T>;

  explicit RemoteKeysOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    FE_REQUIRES_OK(ctx, ReadGroupAttrs(ctx, &attrs_));
    FE_REQUIRES_OK(ctx, ReadRemoteTables(ctx, &tables_));
    ids_are_keys_ = GetAttr<bool>(ctx, "ids_are_keys");
    table_rows_ = RowsOfTables(tables_);
  }

  void Compute(OpKernelContext* ctx) override {
    int64_t step = -1;
    FE_REQUIRES_OK(ctx, ReadScalar(ctx, ctx->num_inputs() - 1, "step", &step));
    CpuGroup<T> group(ctx);
    GroupInput<T> in;
    FE_REQUIRES_OK(ctx, ReadGroup<T>(ctx, attrs_, group.weight_reader(), &in));
    for (size_t c = 0; c < in.columns.size(); ++c) {
      in.columns[c].dim = 1;  // no row is read here
      in.columns[c].ids_are_keys = ids_are_keys_;
      in.columns[c].table_rows = table_rows_[static_cast<size_t>(attrs_.table_of_column[c])];
    }
    RemoteKeys found;
    OP_REQUIRES_OK(ctx, FindKeys(ctx, in, &found));
    for (size_t s = 0; s < found.messages.size(); ++s) {
      found.messages[s].step = step;
      Tensor* message = nullptr;
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, static_cast<int>(s),
                                         {NumMessageWords(found.messages[s])}, &message));
      WriteMessage(found.messages[s], OutputSpan<int64_t>(message));
    }
  }

 private:
  absl::Status FindKeys(OpKernelContext* ctx, const GroupInput<T>& in, RemoteKeys* found) const {
    const int first_positions = static_cast<int>(tables_.num_servers) + 1;
    std::vector<Span<int32_t>> positions;
    for (size_t c = 0; c < in.columns.size(); ++c) {
      Tensor* of_column = nullptr;
      TF_RETURN_IF_ERROR(AllocateOutput(ctx, first_positions + static_cast<int>(c),
                                        {in.columns[c].num_pairs()}, &of_column));
      positions.push_back(OutputSpan<int32_t>(of_column));
    }
    GroupKeysInput<V> keys_in;
    keys_in.columns = in.span();
    keys_in.table_of_column = AsSpan(attrs_.table_of_column);
    keys_in.positions = AsSpan(std::as_const(positions));
    keys_in.num_tables = tables_.num_tables();
    TF_RETURN_IF_ERROR(
        ToTfStatus(FindRemoteKeys(TfExec(ctx), keys_in, tables_, ids_are_keys_, found)));
    TF_RETURN_IF_ERROR(CopyToOutput(ctx, first_positions - 1, found->part_sizes));
    return CopyToOutput(ctx, first_positions + static_cast<int>(attrs_.num_columns()),
                        found->keys.default_positions);
  }

  template <typename Number>
  static absl::Status CopyToOutput(OpKernelContext* ctx, int index,
                                   const std::vector<Number>& numbers) {
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, index, {static_cast<int64_t>(numbers.size())}, &output));
    std::copy(numbers.begin(), numbers.end(), OutputSpan<Number>(output).begin());
    return absl::OkStatus();
  }

  GroupAttrs attrs_;
  RemoteTables tables_;
  std::vector<int64_t> table_rows_;
  bool ids_are_keys_ = false;
};

#define FE_REGISTER(T)                                                                            \
  REGISTER_KERNEL_BUILDER(                                                                        \
      Name("FusedEmbeddingRemoteKeys").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("dtype"), \
      RemoteKeysOp<T>);
FE_FOR_EACH_TF_VALUE_TYPE(FE_REGISTER)
#undef FE_REGISTER

}  // namespace
}  // namespace fused_embedding
