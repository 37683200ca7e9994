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
    pairs_.address_bits = static_cast<uint64_t>(in.dim) * sizeof(T);
    for (int64_t u = 0; u < rows.size(); ++u) {
      pairs_.address_bits |= reinterpret_cast<uintptr_t>(rows[u]);
    }
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

// Pairs that name no embedding, or no row, at both ends and between those of a case: what a GPU
// must leave out. kept[k] is the position of pair k of the case.
inline LookupCase WithMissingPairs(const LookupCase& in, Random* random,
                                   std::vector<int64_t>* kept) {
  LookupCase mixed = in;
  mixed.unique_idx.clear();
  mixed.row_ids.clear();
  mixed.weights.clear();
  const int32_t num_unique = static_cast<int32_t>(in.embeddings.size());
  const int32_t missing_unique[] = {-1, num_unique, std::numeric_limits<int32_t>::min(),
                                    std::numeric_limits<int32_t>::max()};
  const int64_t missing_rows[] = {-1, in.num_rows, kInt64Min, kInt64Max};
  const auto add = [&](int32_t unique, int64_t row, double weight) {
    mixed.unique_idx.push_back(unique);
    mixed.row_ids.push_back(row);
    if (!in.weights.empty()) mixed.weights.push_back(weight);
  };
  for (size_t k = 0; k <= in.num_pairs(); ++k) {
    for (int64_t n = RandomInt(random, k % in.num_pairs() == 0, 2); n > 0; --n) {
      const bool has_row = RandomBool(random), has_unique = !has_row && RandomBool(random);
      add(has_unique ? 0 : missing_unique[RandomInt(random, 0, 3)],
          has_row ? 0 : missing_rows[RandomInt(random, 0, 3)], 3);
    }
    if (k == in.num_pairs()) break;
    kept->push_back(static_cast<int64_t>(mixed.row_ids.size()));
    add(in.unique_idx[k], in.row_ids[k], in.weight(k));
  }
  return mixed;
}

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_TESTS_CPP_CUDA_LOOKUP_TESTING_H_
