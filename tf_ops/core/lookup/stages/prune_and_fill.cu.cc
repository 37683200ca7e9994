#include "tf_ops/core/lookup/stages/prune_and_fill.h"

#include "tf_ops/core/base/cuda/algorithm.h"
#include "tf_ops/core/base/cuda/kernel.cu.h"
#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/rows/pairs.h"

namespace fused_embedding {
namespace {

// Flags have one element more than there are pairs, or rows, so that their sums end with the total.
template <typename Weight>
__global__ void FlagKeptKernel(PruneAndFillInput<Weight> in, int32_t* __restrict__ is_kept) {
  for (int64_t i = ThreadOfGrid(); i <= in.ids.size; i += NumThreadsOfGrid()) {
    is_kept[i] = i < in.ids.size && in.IsKept(i);
  }
}

template <typename Weight>
__global__ void CheckRowsKernel(PruneAndFillInput<Weight> in, const int32_t* __restrict__ is_kept,
                                bool* __restrict__ is_row_empty, FirstPosition* first_bad) {
  for (int64_t i = ThreadOfGrid(); i < in.ids.size; i += NumThreadsOfGrid()) {
    const int64_t row = in.indices[2 * i];
    if (!IsIndex(row, in.num_rows)) {
      first_bad->Add(i);
    } else if (is_kept[i]) {
      is_row_empty[row] = false;  // whoever writes it
    }
  }
}

__global__ void FlagEmptyKernel(const bool* __restrict__ is_row_empty, int64_t num_rows,
                                int32_t* __restrict__ flags) {
  for (int64_t row = ThreadOfGrid(); row <= num_rows; row += NumThreadsOfGrid()) {
    flags[row] = row < num_rows && is_row_empty[row];
  }
}

template <typename Weight>
__global__ void KeepKernel(PruneAndFillInput<Weight> in, const int64_t* __restrict__ kept_before,
                           PruneAndFillOutput<Weight> out) {
  for (int64_t i = ThreadOfGrid(); i < in.ids.size; i += NumThreadsOfGrid()) {
    const int64_t to = kept_before[i];
    if (kept_before[i + 1] == to) continue;
    out.ids[to] = in.ids[i];
    out.indices[2 * to] = in.indices[2 * i];
    out.indices[2 * to + 1] = in.indices[2 * i + 1];
    if (!out.weights.empty()) out.weights[to] = in.weights[i];
  }
}

// Filled rows follow `num_kept` pairs.
template <typename Weight>
__global__ void FillKernel(PruneAndFillInput<Weight> in, int64_t num_kept,
                           const int64_t* __restrict__ filled_before,
                           PruneAndFillOutput<Weight> out) {
  for (int64_t row = ThreadOfGrid(); row < in.num_rows; row += NumThreadsOfGrid()) {
    if (filled_before[row + 1] == filled_before[row]) continue;
    const int64_t to = num_kept + filled_before[row];
    out.ids[to] = in.filled_id();
    out.indices[2 * to] = row;
    out.indices[2 * to + 1] = 0;
    if (out.weights.empty()) continue;
    Store(static_cast<ComputeType<Weight>>(in.default_weight), &out.weights[to]);
  }
}

template <typename Weight>
__global__ void SpreadGradKernel(Span<const int64_t> kept_before, Span<const Weight> kept_grad,
                                 Weight* __restrict__ weights_grad) {
  for (int64_t i = ThreadOfGrid(); i + 1 < kept_before.size; i += NumThreadsOfGrid()) {
    const int64_t from = kept_before[i];
    const bool has_grad = kept_before[i + 1] != from && from < kept_grad.size;
    weights_grad[i] = has_grad ? kept_grad[from] : Weight{};
  }
}

// Writes plan->kept_before, and the flags that it sums up.
template <typename Weight>
Status CountKept(const GpuExec& exec, const PruneAndFillInput<Weight>& in,
                 DeviceBuffer<int32_t>* is_kept, DeviceBuffer<int64_t>* kept_before) {
  FE_RETURN_IF_ERROR(is_kept->Allocate(exec, in.ids.size + 1));
  FE_RETURN_IF_ERROR(kept_before->Allocate(exec, in.ids.size + 1));
  FE_RETURN_IF_ERROR(Launch(exec, in.ids.size + 1, FlagKeptKernel<Weight>, in, is_kept->data()));
  return ExclusiveSum<int64_t>(exec, is_kept->span(), kept_before->span());
}

Status CountFilled(const GpuExec& exec, Span<const bool> is_row_empty,
                   DeviceBuffer<int64_t>* filled_before) {
  const int64_t num_rows = is_row_empty.size;
  DeviceBuffer<int32_t> flags;
  FE_RETURN_IF_ERROR(flags.Allocate(exec, num_rows + 1));
  FE_RETURN_IF_ERROR(filled_before->Allocate(exec, num_rows + 1));
  FE_RETURN_IF_ERROR(
      Launch(exec, num_rows + 1, FlagEmptyKernel, is_row_empty.data, num_rows, flags.data()));
  return ExclusiveSum<int64_t>(exec, flags.span(), filled_before->span());
}

}  // namespace

template <typename Weight>
Status PlanPruneAndFill(const GpuExec& exec, const PruneAndFillInput<Weight>& in,
                        Span<bool> is_row_empty, GpuPruneAndFillPlan* plan) {
  FE_RETURN_IF_ERROR(CheckSizes(in));
  DeviceBuffer<FirstPosition> device_bad;
  DeviceBuffer<int32_t> is_kept;
  FE_RETURN_IF_ERROR(AllocateFirst(exec, 1, &device_bad));
  FE_RETURN_IF_ERROR(Fill(exec, true, is_row_empty));
  FE_RETURN_IF_ERROR(CountKept(exec, in, &is_kept, &plan->kept_before));
  FE_RETURN_IF_ERROR(Launch(exec, in.ids.size, CheckRowsKernel<Weight>, in, is_kept.data(),
                            is_row_empty.data, device_bad.data()));
  FirstPosition first_bad;
  plan->sizes = {};
  Readback readback;
  readback.Add<FirstPosition>(device_bad.data(), {&first_bad, 1});
  readback.Add<int64_t>(plan->kept_before.data() + in.ids.size, {&plan->sizes.num_kept, 1});
  if (in.fill) {
    FE_RETURN_IF_ERROR(CountFilled(exec, is_row_empty, &plan->filled_before));
    readback.Add<int64_t>(plan->filled_before.data() + in.num_rows, {&plan->sizes.num_filled, 1});
  }
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  if (!first_bad.is_found()) return Status();
  int64_t row = 0;
  FE_RETURN_IF_ERROR(ReadValue(exec, in.indices.data + 2 * first_bad.position(), &row));
  return NoSuchRowId(kPruneAndFillRows, first_bad.position(), row, in.num_rows);
}

template <typename Weight>
Status RunPruneAndFill(const GpuExec& exec, const PruneAndFillInput<Weight>& in,
                       const GpuPruneAndFillPlan& plan, Span<const bool> is_row_empty,
                       const PruneAndFillOutput<Weight>& out) {
  FE_RETURN_IF_ERROR(
      Launch(exec, in.ids.size, KeepKernel<Weight>, in, plan.kept_before.data(), out));
  if (plan.sizes.num_filled == 0) return Status();
  return Launch(exec, is_row_empty.size, FillKernel<Weight>, in, plan.sizes.num_kept,
                plan.filled_before.data(), out);
}

template <typename Weight>
Status PruneAndFillGrad(const GpuExec& exec, const PruneAndFillInput<Weight>& in,
                        Span<const Weight> kept_grad, Span<Weight> weights_grad) {
  DeviceBuffer<int32_t> is_kept;
  DeviceBuffer<int64_t> kept_before;
  FE_RETURN_IF_ERROR(CountKept(exec, in, &is_kept, &kept_before));
  return Launch(exec, in.ids.size, SpreadGradKernel<Weight>, kept_before.span(), kept_grad,
                weights_grad.data);
}

#define FE_INSTANTIATE(Weight)                                                                   \
  template Status PlanPruneAndFill(const GpuExec&, const PruneAndFillInput<Weight>&, Span<bool>, \
                                   GpuPruneAndFillPlan*);                                        \
  template Status RunPruneAndFill(const GpuExec&, const PruneAndFillInput<Weight>&,              \
                                  const GpuPruneAndFillPlan&, Span<const bool>,                  \
                                  const PruneAndFillOutput<Weight>&);                            \
  template Status PruneAndFillGrad(const GpuExec&, const PruneAndFillInput<Weight>&,             \
                                   Span<const Weight>, Span<Weight>);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
