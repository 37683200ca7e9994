// The groups of group_testing.h in device memory.

#ifndef FUSED_EMBEDDING_TESTS_CPP_CUDA_GROUP_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_CUDA_GROUP_TESTING_H_

#include <memory>
#include <vector>

#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/group_testing.h"
#include "tf_ops/core/lookup/group/group_lookup.h"
#include "tf_ops/core/lookup/group/group_lookup_grad.h"
#include "tf_ops/core/lookup/group/group_lookup_weights_grad.h"

namespace fused_embedding {

template <typename T>
class DeviceGroup : public GroupCase<T> {
 public:
  using typename GroupCase<T>::Gradient;
  using GroupCase<T>::cases_;

  explicit DeviceGroup(int seed) : GroupCase<T>(seed) {
    for (const Array<T>& table : this->flat_tables_) device_tables_.emplace_back(table);
    for (size_t c = 0; c < cases_.size(); ++c) {
      memory_.push_back(std::make_unique<ColumnOf<T, DeviceArray>>(
          cases_[c], device_tables_[cases_[c].table], this->row_strides_[c]));
      columns_.push_back(memory_.back()->column());
      device_grads_.emplace_back(this->flat_grads_[c]);
      combined_grads_.push_back({device_grads_.back().data(), cases_[c].pairs.dim});
    }
  }

  Span<const GroupColumn<T>> span() const { return AsSpan(columns_); }

  // Each column's result, with `gap` values between rows that must stay as they are.
  std::vector<Array<T>> Combine(const GpuExec& gpu, int64_t gap) const {
    const int64_t num_waits = NumWaits();
    GpuGroupPlan<T> plan;
    EXPECT_TRUE(IsOk(PlanGroupLookup(gpu, span(), &plan)));
    EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
    std::vector<DeviceArray<T>> results;
    std::vector<CombinedOut<T>> out;
    for (const ColumnCase& column : cases_) {
      const int64_t stride = column.pairs.dim + gap;
      results.emplace_back(Array<T>(column.pairs.num_rows * stride, Rounded<T>(-77)));
      out.push_back({results.back().data(), stride});
    }
    EXPECT_TRUE(IsOk(RunGroupLookup<T>(gpu, span(), plan, AsSpan(out))));
    std::vector<Array<T>> on_host;
    for (const DeviceArray<T>& result : results) on_host.push_back(result.ToHost());
    return on_host;
  }

  void PlanBackward(const GpuExec& gpu, GpuGroupGradPlan<T>* plan) const {
    const int64_t num_tables = static_cast<int64_t>(device_tables_.size());
    const int64_t num_waits = NumWaits();
    EXPECT_TRUE(IsOk(PlanGroupLookupGrad<T>(
        gpu, {span(), AsSpan(combined_grads_), AsSpan(this->table_of_column_), num_tables}, plan)));
    EXPECT_EQ(NumWaits() - num_waits, kIsEmulated ? 1 : 0);
  }

  // The rows of table t begin `shift` values behind an allocation.
  std::vector<Gradient> Backward(const GpuExec& gpu, int64_t shift) const {
    GpuGroupGradPlan<T> plan;
    PlanBackward(gpu, &plan);
    std::vector<DeviceArray<int64_t>> ids;
    std::vector<DeviceArray<T>> rows;
    std::vector<TableGrad<T>> out;
    for (const GpuTableGradPlan<T>& table : plan.tables) {
      ids.emplace_back(table.num_unique);
      rows.emplace_back(table.num_unique * table.dim + shift);
      out.push_back({ids.back().data(), rows.back().data() + shift});
    }
    EXPECT_TRUE(IsOk(RunGroupLookupGrad<T>(gpu, plan, AsSpan(out))));
    std::vector<Gradient> results;
    for (size_t t = 0; t < out.size(); ++t) {
      const std::vector<T> with_shift = rows[t].ToHost().values();
      const std::vector<T> values(with_shift.begin() + shift, with_shift.end());
      results.push_back({ids[t].ToHost(), Array<T>::Of(values)});
    }
    return results;
  }

  // Of each column with weights; nothing for others. Rows of gradients lie `gap` values apart.
  std::vector<Array<ComputeType<T>>> BackwardWeights(const GpuExec& gpu, int64_t gap) const {
    std::vector<DeviceArray<T>> device_grads;
    std::vector<CombinedGrad<T>> grads;
    std::vector<DeviceArray<ComputeType<T>>> results;
    std::vector<ComputeType<T>*> out;
    for (size_t c = 0; c < cases_.size(); ++c) {
      const int64_t dim = cases_[c].pairs.dim;
      Matrix with_gap = this->grads_[c];
      for (auto& row : with_gap) row.insert(row.end(), static_cast<size_t>(gap), std::nan(""));
      device_grads.emplace_back(Flat<T>(with_gap, dim + gap));
      grads.push_back({device_grads.back().data(), dim + gap});
      results.emplace_back(static_cast<int64_t>(cases_[c].weights.size()));
      out.push_back(results.back().data());
    }
    const int64_t num_waits = NumWaits();
    EXPECT_TRUE(IsOk(GroupLookupWeightsGrad<T>(gpu, span(), AsSpan(grads),
                                               {out.data(), static_cast<int64_t>(out.size())})));
    EXPECT_EQ(NumWaits() - num_waits, 0);
    std::vector<Array<ComputeType<T>>> on_host;
    for (const auto& result : results) on_host.push_back(result.ToHost());
    return on_host;
  }

  void ExpectWeightsGradients(const std::vector<Array<ComputeType<T>>>& got) const {
    for (size_t c = 0; c < cases_.size(); ++c) {
      if (!cases_[c].weights.empty()) this->ExpectWeightsGradient(c, got[c]);
    }
  }

 protected:
  std::vector<DeviceArray<T>> device_tables_;

 private:
  std::vector<std::unique_ptr<ColumnOf<T, DeviceArray>>> memory_;
  std::vector<GroupColumn<T>> columns_;
  std::vector<DeviceArray<T>> device_grads_;
  std::vector<CombinedGrad<T>> combined_grads_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_CUDA_GROUP_TESTING_H_
