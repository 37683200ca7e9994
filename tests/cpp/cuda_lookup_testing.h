// The pairs of naive_lookup.h in device memory.

#ifndef FUSED_EMBEDDING_TESTS_CPP_CUDA_LOOKUP_TESTING_H_
#define FUSED_EMBEDDING_TESTS_CPP_CUDA_LOOKUP_TESTING_H_

#include "tests/cpp/cuda_testing.h"
#include "tests/cpp/naive_lookup.h"

namespace fused_embedding {

// Each embedding in an allocation of its own, `shift` values behind its beginning.
template <typename T>
class DevicePairs {
 public:
  explicit DevicePairs(const LookupCase& in, int64_t row_stride = 1, int64_t shift = 0)
      : unique_idx_(Array<int32_t>::Of(in.unique_idx)),
        is_zero_row_(Array<bool>::Of(in.is_zero_row)),
        pairs_(PairsOf<T>(in, row_stride).pairs()) {
    Array<const T*> rows(static_cast<int64_t>(in.embeddings.size()));
    for (size_t u = 0; u < in.embeddings.size(); ++u) {
      std::vector<double> shifted(static_cast<size_t>(shift), std::nan(""));
      shifted.insert(shifted.end(), in.embeddings[u].begin(), in.embeddings[u].end());
      embeddings_.emplace_back(Flat<T>({shifted}, in.dim + shift));
      rows[static_cast<int64_t>(u)] = embeddings_.back().data() + shift;
    }
    rows_ = DeviceArray<const T*>(rows);
    Array<int64_t> row_ids(static_cast<int64_t>(in.row_ids.size()) * row_stride, kInt64Min);
    for (size_t k = 0; k < in.row_ids.size(); ++k) {
      row_ids[static_cast<int64_t>(k) * row_stride] = in.row_ids[k];
    }
    row_ids_ = DeviceArray<int64_t>(row_ids);
    weights_ = DeviceArray<ComputeType<T>>(Array<ComputeType<T>>::Of(in.weights));
    pairs_.rows = rows_.view();
    pairs_.unique_idx = unique_idx_.view();
    pairs_.row_ids.data = row_ids_.data();
    pairs_.weights = weights_.view();
    pairs_.is_zero_row = is_zero_row_.view();
  }
  DevicePairs(const DevicePairs&) = delete;

  const Pairs<T>& pairs() const { return pairs_; }

 private:
  std::vector<DeviceArray<T>> embeddings_;
  DeviceArray<const T*> rows_;
  DeviceArray<int32_t> unique_idx_;
  DeviceArray<int64_t> row_ids_;
  DeviceArray<ComputeType<T>> weights_;
  DeviceArray<bool> is_zero_row_;
  Pairs<T> pairs_;
};

// Every kind of case: combiners, dims, weights, clipping, zero rows.
template <typename T, typename Body>
void ForRandomCases(uint64_t seed, std::initializer_list<CaseSize> sizes, const Body& body) {
  Random random(seed);
  for (const int64_t dim : kDims) {
    for (const Combiner combiner : kCombiners) {
      for (CaseSize size : sizes) {
        size.dim = dim;
        const bool has_weights = RandomBool(&random);
        LookupCase in = RandomCase<T>(&random, size, combiner, has_weights);
        if (RandomBool(&random)) in.max_norm = std::sqrt(static_cast<double>(dim));
        if (RandomBool(&random)) std::sort(in.row_ids.begin(), in.row_ids.end());
        for (int64_t row = 0; has_weights && row < size.num_rows; ++row) {
          in.is_zero_row.push_back(RandomBool(&random, 0.2));
        }
        body(in, &random);
      }
    }
  }
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_CUDA_LOOKUP_TESTING_H_
