#include "tf_ops/core/lookup/group/group_lookup.h"

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/group/group_column.cu.h"
#include "tf_ops/core/lookup/rows/row_sum.cu.h"

namespace fused_embedding {
namespace {

// Rows that a group of lanes copies: they are in flight at once.
constexpr int kCopiedRowsPerGroup = 4;

// A column, and what its kernels have to know of it.
template <typename T>
struct ColumnRun : GpuColumn<T> {
  CombinedOut<T> out;
  bool is_one_hot = false;     // pair i is in row i
  bool is_copy = false;        // each row is an embedding as it is: CopyColumnsKernel does it
  bool is_full_width = false;  // rows can be moved by 16 bytes
  int num_lanes = 1;
  Range copy_blocks, combine_blocks, clip_blocks;  // of the kernels below
};

// The pairs of all columns by row, as a plan has them.
template <typename T>
struct ColumnGroups {
  const int32_t* splits;             // or null: all columns are one-hot
  const int32_t* order;              // or null: as they came
  const ComputeType<T>* clip_scale;  // or null: no column clips
};

template <int kWidth, typename T>
__device__ void ClipOf(const ColumnRun<T>& run, ComputeType<T>* clip_scale) {
  const GroupColumn<T>& column = run.column;
  const Lanes lanes(run.num_lanes);
  const int64_t pair = lanes.GroupOf(run.clip_blocks);
  if (pair >= column.num_pairs() || !column.IsKept(pair)) return;
  const T* embedding = column.row(pair);
  const ComputeType<T> scale = ClipScaleOf<kWidth>(lanes, embedding, column.dim, column.max_norm);
  if (lanes.lane == 0) clip_scale[run.first_pair + pair] = scale;
}

template <typename T>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    ClipColumnsKernel(const ColumnRun<T>* __restrict__ runs, int64_t num_runs,
                      ComputeType<T>* __restrict__ clip_scale) {
  const ColumnRun<T>& run = ItemOfBlock(runs, num_runs, &ColumnRun<T>::clip_blocks);
  if (run.is_full_width) {
    ClipOf<kFullWidth<T>>(run, clip_scale);
  } else {
    ClipOf<1>(run, clip_scale);
  }
}

template <int kWidth, typename T>
__device__ void CopyRows(const ColumnRun<T>& run) {
  const GroupColumn<T>& column = run.column;
  const Lanes lanes(run.num_lanes);
  const int64_t first = lanes.GroupOf(run.copy_blocks) * kCopiedRowsPerGroup;
  const T* rows[kCopiedRowsPerGroup];
#pragma unroll
  for (int i = 0; i < kCopiedRowsPerGroup; ++i) {
    rows[i] = first + i < column.num_rows ? column.row(first + i) : nullptr;
  }
  for (int64_t offset = lanes.lane * kWidth; offset < column.dim; offset += lanes.size * kWidth) {
    RowVector<T, kWidth> vectors[kCopiedRowsPerGroup];
#pragma unroll
    for (int i = 0; i < kCopiedRowsPerGroup; ++i) {
      if (rows[i]) vectors[i] = RowVector<T, kWidth>::LoadFrom(rows[i] + offset);
    }
#pragma unroll
    for (int i = 0; i < kCopiedRowsPerGroup; ++i) {
      if (rows[i]) vectors[i].CopyTo(run.out.data + (first + i) * run.out.stride + offset);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    CopyColumnsKernel(const ColumnRun<T>* __restrict__ runs, int64_t num_runs) {
  const ColumnRun<T>& run = ItemOfBlock(runs, num_runs, &ColumnRun<T>::copy_blocks);
  if (run.is_full_width) {
    CopyRows<kFullWidth<T>>(run);
  } else {
    CopyRows<1>(run);
  }
}

template <int kWidth, typename T>
__device__ void CombineRow(const ColumnRun<T>& run, const ColumnGroups<T>& groups,
                           const Lanes& lanes, int64_t row) {
  using C = ComputeType<T>;
  const GroupColumn<T>& column = run.column;
  const int64_t first_pair = run.first_pair;
  const auto pair = [&](int64_t i) { return (groups.order ? groups.order[i] : i) - first_pair; };
  const int32_t* splits = groups.splits + run.first_row + row;
  const Range range =
      run.is_one_hot ? Range{first_pair + row, first_pair + row + 1} : Range{splits[0], splits[1]};
  const RowTerms terms = TermsOf(column, range.begin, range.end, pair);
  T* out = run.out.data + row * run.out.stride;
  if (terms.count == 0) {
    const bool has_default = column.fills_default();
    const T* embedding = has_default ? column.row_of_id(column.default_id) : nullptr;
    const C scale =
        has_default ? ClipScaleOf<kWidth>(lanes, embedding, column.dim, column.max_norm) : C{0};
    const auto row_of = [&](int64_t) { return ScaledRow<T>{embedding, 1}; };
    StoreRowSum<kWidth>(lanes, column.dim, {0, 1}, row_of, Divisor<C>{scale, true}, out);
    return;
  }
  const bool is_zero = HasZeroDenominator(column.combiner, terms.sum);
  const auto row_of = [&](int64_t i) {
    const int64_t k = pair(i);
    if (!column.IsKept(k)) return ScaledRow<T>{};
    const C clip = column.max_norm >= 0 ? groups.clip_scale[first_pair + k] : C{1};
    return ScaledRow<T>{column.row(k), column.weight(k) * clip};
  };
  const Divisor<C> divisor = is_zero ? Divisor<C>() : DivisorOfRow(column, terms);
  StoreRowSum<kWidth>(lanes, column.dim, {range.begin, is_zero ? range.begin : range.end}, row_of,
                      divisor, out);
}

template <int kWidth, typename T>
__device__ void CombineRows(const ColumnRun<T>& run, const ColumnGroups<T>& groups) {
  const Lanes lanes(run.num_lanes);
  const int64_t row = lanes.GroupOf(run.combine_blocks);
  if (row < run.column.num_rows) CombineRow<kWidth>(run, groups, lanes, row);
}

template <typename T>
__global__ void __launch_bounds__(kBlockSize, kMinCombineBlocks<T>)
    CombineColumnsKernel(const ColumnRun<T>* __restrict__ runs, int64_t num_runs,
                         ColumnGroups<T> groups) {
  const ColumnRun<T>& run = ItemOfBlock(runs, num_runs, &ColumnRun<T>::combine_blocks);
  if (run.is_full_width) {
    CombineRows<kFullWidth<T>>(run, groups);
  } else {
    CombineRows<1>(run, groups);
  }
}

template <typename T>
bool IsFullWidth(const GroupColumn<T>& column, const CombinedOut<T>& out) {
  const uint64_t stride_bytes = static_cast<uint64_t>(out.stride) * sizeof(T);
  return HasFullWidth<T>(column.dim, reinterpret_cast<uintptr_t>(column.table) |
                                         reinterpret_cast<uintptr_t>(out.data) | stride_bytes);
}

// Rows of no values need no work, however many there are.
template <typename T>
Status LayOutWithValues(Span<const GroupColumn<T>> columns, LaidOutColumns<T>* laid_out) {
  std::vector<GroupColumn<T>> with_values(columns.begin(), columns.end());
  for (GroupColumn<T>& column : with_values) {
    if (column.dim == 0) column.num_rows = column.ids.size = 0;
  }
  return LayOutColumns<T>(AsSpan(with_values), laid_out);
}

}  // namespace

template <typename T>
Status PlanGroupLookup(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                       GpuGroupPlan<T>* plan) {
  std::vector<PairOrder> orders;
  FE_RETURN_IF_ERROR(CheckColumns(exec, columns, &orders));
  return PlanGroupLookup(exec, orders, columns, plan);
}

template <typename T>
Status PlanGroupLookup(const GpuExec& exec, const std::vector<PairOrder>& orders,
                       Span<const GroupColumn<T>> columns, GpuGroupPlan<T>* plan) {
  plan->orders = orders;
  bool are_one_hot = true, are_sorted = true;
  for (int64_t c = 0; c < columns.size; ++c) {
    are_one_hot &= plan->orders[static_cast<size_t>(c)].is_one_hot || columns[c].dim == 0;
    are_sorted &= plan->orders[static_cast<size_t>(c)].is_sorted || columns[c].dim == 0;
  }
  if (are_one_hot) return Status();
  LaidOutColumns<T> laid_out;
  DeviceBuffer<GpuColumn<T>> device_columns;
  FE_RETURN_IF_ERROR(LayOutWithValues(columns, &laid_out));
  FE_RETURN_IF_ERROR(Upload<GpuColumn<T>>(exec, AsSpan(laid_out.columns), &device_columns));
  return GroupColumnsByRow(exec, laid_out, device_columns, are_sorted, &plan->by_row);
}

template <typename T>
Status RunGroupLookup(const GpuExec& exec, Span<const GroupColumn<T>> columns,
                      const GpuGroupPlan<T>& plan, Span<const CombinedOut<T>> combined) {
  LaidOutColumns<T> laid_out;
  FE_RETURN_IF_ERROR(LayOutWithValues(columns, &laid_out));
  std::vector<ColumnRun<T>> runs(laid_out.columns.size());
  int64_t num_copy_blocks = 0, num_combine_blocks = 0, num_clip_blocks = 0;
  for (size_t c = 0; c < runs.size(); ++c) {
    ColumnRun<T>& run = runs[c];
    static_cast<GpuColumn<T>&>(run) = laid_out.columns[c];
    const GroupColumn<T>& column = run.column;
    run.out = combined[static_cast<int64_t>(c)];
    run.is_one_hot = plan.orders[c].is_one_hot;
    run.is_copy = plan.orders[c].is_full() && column.weights.empty() && column.max_norm < 0;
    run.is_full_width = IsFullWidth(column, run.out);
    run.num_lanes = NumLanes<T>(column.dim, run.is_full_width);
    const int64_t groups_per_block = kBlockSize / run.num_lanes;
    run.copy_blocks = TakeBlocks(run.is_copy ? column.num_rows : 0,
                                 groups_per_block * kCopiedRowsPerGroup, &num_copy_blocks);
    run.combine_blocks =
        TakeBlocks(run.is_copy ? 0 : column.num_rows, groups_per_block, &num_combine_blocks);
    run.clip_blocks = TakeBlocks(column.max_norm < 0 ? 0 : column.num_pairs(), groups_per_block,
                                 &num_clip_blocks);
  }
  DeviceBuffer<ColumnRun<T>> device_runs;
  DeviceBuffer<ComputeType<T>> clip_scale;
  FE_RETURN_IF_ERROR(Upload<ColumnRun<T>>(exec, AsSpan(runs), &device_runs));
  if (num_clip_blocks > 0) FE_RETURN_IF_ERROR(clip_scale.Allocate(exec, laid_out.num_pairs));
  FE_RETURN_IF_ERROR(LaunchBlocks(exec, num_clip_blocks, ClipColumnsKernel<T>, device_runs.data(),
                                  device_runs.size(), clip_scale.data()));
  const ColumnGroups<T> groups = {plan.by_row.splits.data(), plan.by_row.order.data(),
                                  clip_scale.data()};
  FE_RETURN_IF_ERROR(LaunchBlocks(exec, num_copy_blocks, CopyColumnsKernel<T>, device_runs.data(),
                                  device_runs.size()));
  return LaunchBlocks(exec, num_combine_blocks, CombineColumnsKernel<T>, device_runs.data(),
                      device_runs.size(), groups);
}

#define FE_INSTANTIATE(T)                                                                        \
  template Status PlanGroupLookup(const GpuExec&, Span<const GroupColumn<T>>, GpuGroupPlan<T>*); \
  template Status PlanGroupLookup(const GpuExec&, const std::vector<PairOrder>&,                 \
                                  Span<const GroupColumn<T>>, GpuGroupPlan<T>*);                 \
  template Status RunGroupLookup(const GpuExec&, Span<const GroupColumn<T>>,                     \
                                 const GpuGroupPlan<T>&, Span<const CombinedOut<T>>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
