// Stages 5 and 6.

#include "tf_ops/c_api/arrays.h"
#include "tf_ops/c_api/plans.h"
#include "tf_ops/core/lookup/rows/device_inputs.h"
#include "tf_ops/core/lookup/stages/post_lookup.h"
#include "tf_ops/core/lookup/stages/post_lookup_grad.h"

namespace fused_embedding::c_api {
namespace {

// Where the rows of a matrix begin, in the memory of the machine.
template <typename T>
class RowAddresses {
 public:
  Status Find(const FeMachine& machine, T* matrix, int64_t num_rows, int64_t dim) {
    if (const GpuExec* gpu = machine.gpu()) {
      FE_RETURN_IF_ERROR(on_gpu_.Allocate(*gpu, num_rows));
      const ShardRows shard = {reinterpret_cast<uintptr_t>(matrix), 0};
      span_ = {reinterpret_cast<T**>(on_gpu_.data()), num_rows};
      return LocateRows(*gpu, {&shard, 1}, dim * int64_t{sizeof(T)}, {}, on_gpu_.span());
    }
    FE_RETURN_IF_ERROR(on_cpu_.Allocate(num_rows));
    for (int64_t u = 0; u < num_rows; ++u) on_cpu_[u] = matrix + u * dim;
    span_ = on_cpu_.span();
    return Status();
  }
  Span<T* const> span() const { return span_; }

 private:
  Buffer<T*> on_cpu_;
  DeviceBuffer<uintptr_t> on_gpu_;
  Span<T*> span_;
};

template <typename T>
struct PairsInput {
  RowAddresses<const T> rows;
  Pairs<T> pairs;
};

template <typename T>
Status ToPairs(const FeMachine& machine, const FePairs& in, PairsInput<T>* input) {
  Pairs<T>& pairs = input->pairs;
  Span<const T> rows;
  FE_RETURN_IF_ERROR(ToSpan("rows", in.rows, in.num_unique, in.dim, &rows));
  FE_RETURN_IF_ERROR(ToSpan("unique_idx", in.unique_idx, &pairs.unique_idx));
  FE_RETURN_IF_ERROR(ToRowIds(in.row_ids, &pairs.row_ids));
  FE_RETURN_IF_ERROR(ToSpan("weights", in.weights, &pairs.weights));
  FE_RETURN_IF_ERROR(
      ToOptionalSpan("is_zero_row", in.is_zero_row, in.num_rows, &pairs.is_zero_row));
  FE_RETURN_IF_ERROR(ToCombiner(in.combiner, &pairs.combiner));
  FE_RETURN_IF_ERROR(input->rows.Find(machine, rows.data, in.num_unique, in.dim));
  pairs.rows = input->rows.span();
  pairs.address_bits =
      reinterpret_cast<uintptr_t>(rows.data) | static_cast<uint64_t>(in.dim) * sizeof(T);
  pairs.dim = in.dim;
  pairs.num_rows = in.num_rows;
  pairs.max_norm = in.max_norm;
  return Status();
}

}  // namespace

Status PlanPostLookup(const FeMachine& machine, const FePairs& in, FePlanned* planned) {
  return VisitType(in.dtype, [&](auto value) {
    using T = decltype(value);
    auto input = std::make_shared<PairsInput<T>>();
    int64_t size = 0;
    FE_RETURN_IF_ERROR(ToPairs(machine, in, input.get()));
    FE_RETURN_IF_ERROR(ToSize("combined", in.num_rows, in.dim, &size));
    planned->sizes = {size, in.num_rows};
    if (const GpuExec* gpu = machine.gpu()) {
      auto plan = std::make_shared<GpuPostLookupPlan<T>>();
      FE_RETURN_IF_ERROR(fused_embedding::PlanPostLookup(*gpu, input->pairs, plan.get()));
      planned->run = [=, num_rows = in.num_rows](const FeArray* outputs) {
        return RunPostLookup(*gpu, input->pairs, *plan, OutputSpan<T>(outputs[0], size),
                             OutputSpan<int32_t>(outputs[1], num_rows));
      };
      return Status();
    }
    const CpuExec* cpu = machine.cpu();
    auto plan = std::make_shared<PostLookupPlan<T>>();
    FE_RETURN_IF_ERROR(fused_embedding::PlanPostLookup(*cpu, input->pairs, plan.get()));
    planned->run = [=, num_rows = in.num_rows](const FeArray* outputs) {
      RunPostLookup(*cpu, input->pairs, *plan, OutputSpan<T>(outputs[0], size),
                    OutputSpan<int32_t>(outputs[1], num_rows));
      return Status();
    };
    return Status();
  });
}

Status PlanPostLookupGrad(const FeMachine& machine, const FePairs& in, FePlanned* planned) {
  return VisitType(in.dtype, [&](auto value) {
    using T = decltype(value);
    auto input = std::make_shared<PairsInput<T>>();
    Span<const int32_t> num_ids;
    Span<const T> grad;
    FE_RETURN_IF_ERROR(ToPairs(machine, in, input.get()));
    FE_RETURN_IF_ERROR(ToOptionalSpan("num_ids", in.num_ids, in.num_rows, &num_ids));
    FE_RETURN_IF_ERROR(ToSpan("combined_grad", in.combined_grad, in.num_rows, in.dim, &grad));
    planned->sizes = {in.rows.size};
    const auto addresses_in = [&machine, num_unique = in.num_unique, dim = in.dim](
                                  const FeArray& output, RowAddresses<T>* rows) {
      return rows->Find(machine, static_cast<T*>(output.data), num_unique, dim);
    };
    if (const GpuExec* gpu = machine.gpu()) {
      auto plan = std::make_shared<GpuPostLookupGradPlan<T>>();
      FE_RETURN_IF_ERROR(
          fused_embedding::PlanPostLookupGrad(*gpu, input->pairs, num_ids, plan.get()));
      planned->run = [=](const FeArray* outputs) {
        RowAddresses<T> rows;
        FE_RETURN_IF_ERROR(addresses_in(outputs[0], &rows));
        return RunPostLookupGrad<T>(*gpu, input->pairs, *plan, grad, rows.span());
      };
      return Status();
    }
    const CpuExec* cpu = machine.cpu();
    auto plan = std::make_shared<PostLookupGradPlan<T>>();
    FE_RETURN_IF_ERROR(fused_embedding::PlanPostLookupGrad(input->pairs, num_ids, plan.get()));
    planned->run = [=](const FeArray* outputs) {
      RowAddresses<T> rows;
      FE_RETURN_IF_ERROR(addresses_in(outputs[0], &rows));
      RunPostLookupGrad<T>(*cpu, input->pairs, *plan, grad, rows.span());
      return Status();
    };
    return Status();
  });
}

}  // namespace fused_embedding::c_api
