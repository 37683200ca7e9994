#include "tf_ops/core/lookup/group/group_lookup_weights_grad.h"

#include <vector>

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/group/group_column.cu.h"
#include "tf_ops/core/lookup/rows/row_sum.cu.h"
#include "tf_ops/core/lookup/stages/post_lookup_weights_grad.h"

namespace fused_embedding {
namespace {

// A column whose weights' gradient is wanted.
template <typename T>
struct WeightedColumn : GpuColumn<T> {
  CombinedGrad<T> combined_grad;
  ComputeType<T>* weights_grad = nullptr;  // [nnz]
  bool is_full_width = false;              // rows can be moved by 16 bytes
  int num_lanes = 1;
  Range dot_blocks;  // of DotColumnsKernel
};

// Writes (e g) of one pair, 0 for one that does not count.
template <int kWidth, typename T>
__device__ void DotPair(const WeightedColumn<T>& of_block) {
  using C = ComputeType<T>;
  const GroupColumn<T>& column = of_block.column;
  const Lanes lanes(of_block.num_lanes);
  const int64_t pair = lanes.GroupOf(of_block.dot_blocks);
  if (pair >= column.num_pairs()) return;
  C dot = 0;
  if (column.Exists(pair)) {
    const T* embedding = column.row(pair);
    const T* grad = of_block.combined_grad.row(column.row_ids[pair]);
    dot = ClipScaleOf<kWidth>(lanes, embedding, column.dim, column.max_norm) *
          Dot<kWidth>(lanes, embedding, grad, column.dim);
  }
  if (lanes.lane == 0) of_block.weights_grad[pair] = dot;
}

template <typename T>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    DotColumnsKernel(const WeightedColumn<T>* __restrict__ columns, int64_t num_columns) {
  const WeightedColumn<T>& column =
      ItemOfBlock(columns, num_columns, &WeightedColumn<T>::dot_blocks);
  if (column.is_full_width) {
    DotPair<kFullWidth<T>>(column);
  } else {
    DotPair<1>(column);
  }
}

template <typename T>
__global__ void FinishColumnsKernel(const WeightedColumn<T>* __restrict__ columns,
                                    int64_t num_columns, const int32_t* __restrict__ splits,
                                    const int32_t* __restrict__ order) {
  using C = ComputeType<T>;
  const WeightedColumn<T>& of_block = ItemOfBlock(columns, num_columns, &GpuColumn<T>::row_blocks);
  const GroupColumn<T>& column = of_block.column;
  const auto pair_of = [&](int64_t i) {
    const int64_t pair = order[i] - of_block.first_pair;
    return column.Exists(pair) ? RowPair<C>{pair, column.weight(pair)} : RowPair<C>{-1, 0};
  };
  of_block.ForEachRow([&](int64_t row) {
    const int32_t* split = splits + of_block.first_row + row;
    FinishRowWeightsGrad(column.combiner, false, split[0], split[1], pair_of,
                         of_block.weights_grad);
  });
}

// Fills in what is known once columns are laid out. Returns the number of dot_blocks of all.
template <typename T>
int64_t LayOut(const LaidOutColumns<T>& laid_out, std::vector<WeightedColumn<T>>* columns) {
  int64_t num_dot_blocks = 0;
  for (size_t i = 0; i < columns->size(); ++i) {
    WeightedColumn<T>& weighted = (*columns)[i];
    static_cast<GpuColumn<T>&>(weighted) = laid_out.columns[i];
    const GroupColumn<T>& column = weighted.column;
    weighted.is_full_width =
        HasFullWidth<T>(column.dim, weighted.combined_grad.address_bits() |
                                        reinterpret_cast<uintptr_t>(column.table));
    weighted.num_lanes = NumLanes<T>(column.dim, weighted.is_full_width);
    weighted.dot_blocks =
        TakeBlocks(column.num_pairs(), kBlockSize / weighted.num_lanes, &num_dot_blocks);
  }
  return num_dot_blocks;
}

}  // namespace

template <typename T>
Status GroupLookupWeightsGrad(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                              Span<const CombinedGrad<T>> combined_grads,
                              Span<ComputeType<T>* const> weights_grads) {
  FE_RETURN_IF_ERROR(CheckColumnSizes(columns));
  std::vector<GroupColumn<T>> with_weights;
  std::vector<WeightedColumn<T>> weighted;
  bool needs_rows = false;
  for (int64_t c = 0; c < columns.size; ++c) {
    if (weights_grads[c] == nullptr) continue;
    with_weights.push_back(columns[c]);
    weighted.emplace_back();
    weighted.back().combined_grad = combined_grads[c];
    weighted.back().weights_grad = weights_grads[c];
    needs_rows |= columns[c].combiner != Combiner::kSum;
  }
  LaidOutColumns<T> laid_out;
  FE_RETURN_IF_ERROR(LayOutColumns<T>(AsSpan(with_weights), &laid_out));
  const int64_t num_dot_blocks = LayOut(laid_out, &weighted);
  DeviceBuffer<WeightedColumn<T>> device_weighted;
  FE_RETURN_IF_ERROR(Upload<WeightedColumn<T>>(exec, AsSpan(weighted), &device_weighted));
  FE_RETURN_IF_ERROR(LaunchBlocks(exec, num_dot_blocks, DotColumnsKernel<T>, device_weighted.data(),
                                  device_weighted.size()));
  if (!needs_rows) return Status();
  // Whether rows decrease is not known, and to wait for it would take longer than to sort.
  GpuPairGroups by_row;
  DeviceBuffer<GpuColumn<T>> device_columns;
  FE_RETURN_IF_ERROR(Upload<GpuColumn<T>>(exec, AsSpan(laid_out.columns), &device_columns));
  FE_RETURN_IF_ERROR(
      GroupColumnsByRow(exec, laid_out, device_columns, /*are_sorted=*/false, &by_row));
  return LaunchBlocks(exec, laid_out.num_row_blocks, FinishColumnsKernel<T>, device_weighted.data(),
                      device_weighted.size(), by_row.splits.data(), by_row.order.data());
}

#define FE_INSTANTIATE(T)                                                            \
  template Status GroupLookupWeightsGrad(const GpuExec&, Span<const GroupColumn<T>>, \
                                         Span<const CombinedGrad<T>>,                \
                                         Span<ComputeType<T>* const>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
